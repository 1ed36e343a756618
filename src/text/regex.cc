// SPDX-License-Identifier: Apache-2.0
#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/check.h"
#include "text/utf8.h"

namespace latent::text {
namespace {

constexpr size_t kJitStackStart = 32 << 10;
constexpr size_t kJitStackMax = 4 << 20;

std::string error_text(int code) {
  PCRE2_UCHAR8 buffer[256];
  pcre2_get_error_message_8(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

// What a thread needs to match, made once a thread: patterns are shared, this is not.
class MatchState {
 public:
  MatchState()
      : data_(pcre2_match_data_create_8(1, nullptr)),
        context_(pcre2_match_context_create_8(nullptr)),
        stack_(pcre2_jit_stack_create_8(kJitStackStart, kJitStackMax, nullptr)) {
    CHECK(data_ && context_, "no memory for a regex match");
    pcre2_jit_stack_assign_8(context_, nullptr, stack_);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;
  ~MatchState() {
    pcre2_jit_stack_free_8(stack_);
    pcre2_match_context_free_8(context_);
    pcre2_match_data_free_8(data_);
  }

  // PCRE2's return code; match() is valid if it is not negative.
  int run(const pcre2_code_8* code, std::string_view text, size_t start, uint32_t options) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR8>(text.data());
    options |= PCRE2_NO_UTF_CHECK;
    const int rc = pcre2_match_8(code, subject, text.size(), start, options, data_, context_);
    if (rc != PCRE2_ERROR_JIT_STACKLIMIT) return rc;
    return pcre2_match_8(code, subject, text.size(), start, options | PCRE2_NO_JIT, data_, context_);
  }

  Span match() const {
    const PCRE2_SIZE* ovector = pcre2_get_ovector_pointer_8(data_);
    return {static_cast<uint32_t>(ovector[0]), static_cast<uint32_t>(ovector[1])};
  }

 private:
  pcre2_match_data_8* data_;
  pcre2_match_context_8* context_;
  pcre2_jit_stack_8* stack_;
};

size_t next_character(std::string_view text, size_t at) {
  return at < text.size() ? at + scan_utf8(text.substr(at)).length : at + 1;
}

}  // namespace

Result<Regex> Regex::compile(std::string_view pattern) {
  Result<std::string> translated = translate_pattern(pattern);
  if (!translated) return translated.error();
  std::unique_ptr<pcre2_compile_context_8, decltype(&pcre2_compile_context_free_8)> context(
      pcre2_compile_context_create_8(nullptr), &pcre2_compile_context_free_8);
  pcre2_set_newline_8(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE error_at = 0;
  pcre2_code_8* code =
      pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(translated->data()), translated->size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &error_at, context.get());
  if (code == nullptr)
    return make_error(ErrorCode::kUnsupported, "regex '{}' does not compile: {} (near byte {} of '{}')",
                      pattern, error_text(error), error_at, *translated);
  pcre2_jit_compile_8(code, PCRE2_JIT_COMPLETE);  // where it fails, pcre2_match interprets
  return Regex(std::shared_ptr<pcre2_real_code_8>(code, &pcre2_code_free_8));
}

Status Regex::find_all(std::string_view text, std::vector<Span>& out) const {
  thread_local MatchState state;
  size_t last_end = SIZE_MAX;
  for (size_t start = 0; start <= text.size();) {
    const int rc = state.run(code_.get(), text, start, 0);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0)
      return make_error(ErrorCode::kExhausted, "the pre-tokenizer's regex gave up on a text of {} bytes: {}",
                        text.size(), error_text(rc));
    const Span match = state.match();
    const bool empty = match.begin == match.end;
    if (!empty || match.end != last_end) out.push_back(match);
    last_end = match.end;
    start = empty ? next_character(text, match.end) : match.end;
  }
  return {};
}

}  // namespace latent::text
