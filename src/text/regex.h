// SPDX-License-Identifier: Apache-2.0
// The regular expressions of pre-tokenizers. tokenizer.json is written for Oniguruma (Ruby syntax) and
// tiktoken for Rust's regex; both are run by PCRE2 (JIT, Unicode 14) after a translation that keeps their
// meaning and refuses, by name, whatever it cannot keep.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct pcre2_real_code_8;

namespace latent::text {

// Bytes [begin, end) of a text.
struct Span {
  uint32_t begin;
  uint32_t end;
  uint32_t size() const { return end - begin; }
  bool operator==(const Span&) const = default;
};

// The same pattern for PCRE2 (with UTF, UCP, MULTILINE, newline = LF). What differs between the dialects:
//   \s          Unicode White_Space; PCRE2's also holds U+180E
//   \w          Alphabetic, marks, digits, connectors; PCRE2's lacks marks
//   \p{Han}     the script; PCRE2's means script extensions, with all of CJK punctuation
//   \v          one control character; PCRE2's is a class
//   [A&&[^B]]   intersection, which PCRE2 10.42 lacks; where A holds general categories only, it is the
//               complement of (the other categories and B), so one plain class
//   \s+$        searched from every blank of a run it is quadratic; starting only at a run's first is not
// Possessive intervals, inline flags but (?i:…), \b, \h, \R, \X, backreferences, POSIX brackets and nested
// classes mean something else or nothing in one of the dialects: kUnsupported.
Result<std::string> translate_pattern(std::string_view pattern);

// The pattern that matches just `text`.
std::string escape_pattern(std::string_view text);

// Immutable; find_all may be called from any number of threads.
class Regex {
 public:
  static Result<Regex> compile(std::string_view pattern);

  // Appends the matches in `text` (valid UTF-8, under 4 GiB), left to right. An empty match next to the match
  // before it is left out.
  Status find_all(std::string_view text, std::vector<Span>& out) const;

 private:
  explicit Regex(std::shared_ptr<pcre2_real_code_8> code) : code_(std::move(code)) {}

  std::shared_ptr<pcre2_real_code_8> code_;
};

}  // namespace latent::text
