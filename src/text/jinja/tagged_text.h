// SPDX-License-Identifier: Apache-2.0
// Text that remembers, byte by byte, whether the template's author or the conversation wrote it. Every string
// of the interpreter is one of these, so that text of a user never becomes a special token by being rendered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace latent::text::jinja {

enum class Origin : uint8_t {
  kTemplate,  // a literal of the template, or a token name of the tokenizer's configuration
  kData,      // messages, tools, arguments of the request
};

// Data if either is data.
inline Origin mix(Origin a, Origin b) { return a == Origin::kTemplate ? b : Origin::kData; }

class TaggedText {
 public:
  // Bytes [begin of the run before, end) have one origin; neighbouring runs differ.
  struct Run {
    size_t end;
    Origin origin;
  };

  TaggedText() = default;
  TaggedText(std::string bytes, Origin origin);

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<Run>& runs() const { return runs_; }

  TaggedText substr(size_t begin, size_t end) const;  // byte offsets, begin <= end <= size()
  void append(std::string_view bytes, Origin origin);
  void append(const TaggedText& other);

  // The text with each byte range of one origin put through f(std::string_view) -> std::string.
  template <class F>
  TaggedText map_runs(F f) const {
    TaggedText out;
    size_t begin = 0;
    for (const Run& run : runs_) {
      out.append(f(std::string_view(bytes_).substr(begin, run.end - begin)), run.origin);
      begin = run.end;
    }
    return out;
  }

 private:
  std::string bytes_;
  std::vector<Run> runs_;
};

// --- UTF-8; the texts here are valid UTF-8, the interpreter lets nothing else in.

size_t code_point_bytes(char lead);                              // 1..4
char32_t code_point_at(std::string_view text, size_t byte);      // byte < size
size_t count_code_points(std::string_view text);                 // Python's len()
size_t byte_of_code_point(std::string_view text, size_t index);  // index <= count
bool is_space(char32_t code_point);                              // Python's str.isspace()
bool is_printable(char32_t code_point);  // Python's str.isprintable(); repr() escapes the others

// Byte range left after stripping: white space if chars is null, else any code point of chars.
struct ByteRange {
  size_t begin;
  size_t end;
};
ByteRange stripped_range(std::string_view text, const std::string* chars, bool left, bool right);

}  // namespace latent::text::jinja
