// SPDX-License-Identifier: Apache-2.0
// Any bytes as a template, and as messages of a conversation: an error or a text within the limits, never a
// crash. The input is split at its first zero byte: template, then messages.
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/chat_template.h"
#include "text/jinja/json_value.h"
#include "text/jinja/template.h"
#include "text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace latent::text;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string source(input.substr(0, zero));
  const std::string messages(zero == std::string_view::npos ? std::string_view() : input.substr(zero + 1));
  constexpr jinja::RenderLimits kLimits{.max_work = 1 << 20, .max_output_bytes = 1 << 16};

  const latent::Result<jinja::Template> parsed = jinja::Template::parse(source);
  if (!parsed.ok()) return 0;
  jinja::Variables variables = {{"text", jinja::Value::string("a b", jinja::Origin::kData)}};
  try {
    variables.emplace_back("messages", jinja::parse_json(messages));
  } catch (const jinja::TemplateError&) {
    // The template is rendered without them.
  }
  const latent::Result<jinja::TaggedText> text = parsed->render(variables, std::tm{}, kLimits);
  if (!text.ok()) return 0;
  CHECK(text->size() <= kLimits.max_output_bytes, "{} bytes", text->size());
  CHECK(is_utf8(text->bytes()), "the text of a valid template is valid");
  CHECK(text->runs().empty() ? text->empty() : text->runs().back().end == text->size(),
        "runs cover the text");
  return 0;
}
