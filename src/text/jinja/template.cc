// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/template.h"

#include "text/jinja/parser.h"
#include "text/utf8.h"

namespace latent::text::jinja {
namespace {

constexpr size_t kMaxSourceBytes = size_t{1} << 20;

Error to_error(const TemplateError& error) {
  return Error{error.code, fmt::format("chat template, line {}: {}", error.line, error.message)};
}

}  // namespace

Result<Template> Template::parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes)
    return make_error(ErrorCode::kUnsupported, "a chat template of {} bytes is longer than {}", source.size(),
                      kMaxSourceBytes);
  if (!is_utf8(source)) return make_error(ErrorCode::kCorrupt, "the chat template is not UTF-8");
  try {
    return Template(std::make_shared<const Body>(parse_template(source)));
  } catch (const TemplateError& error) {
    return to_error(error);
  }
}

Result<TaggedText> Template::render(const Variables& variables, const std::tm& now,
                                    const RenderLimits& limits) const {
  try {
    return Interpreter(limits, now).run(*body_, variables);
  } catch (const TemplateError& error) {
    return to_error(error);
  }
}

}  // namespace latent::text::jinja
