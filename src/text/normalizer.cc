// SPDX-License-Identifier: Apache-2.0
#include "text/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

namespace latent::text {
namespace {

utf8proc_option_t options_of(UnicodeForm form) {
  int options = UTF8PROC_STABLE;
  options |= form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

Result<std::string> run(UnicodeForm form, const std::string& text) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (size < 0)
    return make_error(ErrorCode::kExhausted, "Unicode normalization of {} bytes failed: {}", text.size(),
                      utf8proc_errmsg(size));
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

Result<std::string> run(const PrependText& step, const std::string& text) {
  return text.empty() ? text : step.prefix + text;
}

Result<std::string> run(const ReplaceText& step, const std::string& text) {
  std::vector<Span> matches;
  if (Status found = step.pattern.find_all(text, matches); !found) return found.error();
  std::string out;
  size_t done = 0;
  for (const Span match : matches) {
    out.append(text, done, match.begin - done).append(step.content);
    done = match.end;
  }
  return out.append(text, done);
}

}  // namespace

Result<std::string> Normalizer::apply(std::string_view text) const {
  std::string current(text);
  for (const Step& step : steps_) {
    Result<std::string> next = std::visit([&](const auto& s) { return run(s, current); }, step);
    if (!next) return next.error();
    current = std::move(*next);
  }
  return current;
}

}  // namespace latent::text
