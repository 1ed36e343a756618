// SPDX-License-Identifier: Apache-2.0
// UTF-8: one scanner, and the one rule for bytes that are not UTF-8, shared by encoding, decoding and
// streaming. Each maximal subpart of an ill-formed sequence (Unicode 15, section 3.9, table 3-8) becomes one
// U+FFFD; that is what Python's decode("utf-8", "replace") and Rust's from_utf8_lossy do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace latent::text {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Kind {
  kCharacter,   // a whole, well-formed character
  kIllFormed,   // a maximal subpart that no further byte can complete
  kIncomplete,  // well-formed so far, but the text ends inside the character
};

struct Utf8Unit {
  Utf8Kind kind;
  size_t length;  // bytes, 1 to 4
};

// The first unit of `bytes`, which must not be empty.
Utf8Unit scan_utf8(std::string_view bytes);

// The code point of a unit of kind kCharacter.
char32_t code_point(std::string_view character);

void append_utf8(std::string& out, char32_t code_point);

bool is_utf8(std::string_view bytes);

// `bytes` with U+FFFD for whatever is not UTF-8, an incomplete tail included.
std::string repair_utf8(std::string_view bytes);

// The same rule over bytes that arrive in pieces: holds back at most 3 bytes, those of a character that is
// not whole yet. push(a), push(b), …, flush() append what repair_utf8(a + b + …) returns.
class Utf8Repair {
 public:
  void push(std::string_view bytes, std::string& out);
  void flush(std::string& out);  // U+FFFD for what is held; the object can be used again
  size_t num_held() const { return held_.size(); }

 private:
  std::string held_;
};

}  // namespace latent::text
