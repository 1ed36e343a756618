// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/tagged_text.h"

#include <utf8proc.h>

#include <algorithm>

namespace latent::text::jinja {

TaggedText::TaggedText(std::string bytes, Origin origin) : bytes_(std::move(bytes)) {
  if (!bytes_.empty()) runs_.push_back({bytes_.size(), origin});
}

void TaggedText::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().origin == origin)
    runs_.back().end = bytes_.size();
  else
    runs_.push_back({bytes_.size(), origin});
}

void TaggedText::append(const TaggedText& other) {
  size_t begin = 0;
  for (const Run& run : other.runs_) {
    append(std::string_view(other.bytes_).substr(begin, run.end - begin), run.origin);
    begin = run.end;
  }
}

TaggedText TaggedText::substr(size_t begin, size_t end) const {
  TaggedText out;
  auto run = std::upper_bound(runs_.begin(), runs_.end(), begin,
                              [](size_t byte, const Run& r) { return byte < r.end; });
  while (begin < end) {
    const size_t stop = std::min(end, run->end);
    out.append(std::string_view(bytes_).substr(begin, stop - begin), run->origin);
    begin = stop;
    ++run;
  }
  return out;
}

size_t code_point_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

char32_t code_point_at(std::string_view text, size_t byte) {
  const size_t n = code_point_bytes(text[byte]);
  const auto lead = static_cast<unsigned char>(text[byte]);
  if (n == 1) return lead;
  char32_t cp = lead & (0x7F >> n);
  for (size_t i = 1; i < n; ++i) cp = cp << 6 | (static_cast<unsigned char>(text[byte + i]) & 0x3F);
  return cp;
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

size_t byte_of_code_point(std::string_view text, size_t index) {
  size_t byte = 0;
  for (; index > 0; --index) byte += code_point_bytes(text[byte]);
  return byte;
}

bool is_space(char32_t cp) {
  return (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x20) || cp == 0x85 || cp == 0xA0 ||
         cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F ||
         cp == 0x205F || cp == 0x3000;
}

bool is_printable(char32_t cp) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(cp))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return cp == U' ';
    default:
      return true;
  }
}

ByteRange stripped_range(std::string_view text, const std::string* chars, bool left, bool right) {
  const auto strips = [&](size_t byte) {
    if (!chars) return is_space(code_point_at(text, byte));
    return chars->find(text.substr(byte, code_point_bytes(text[byte]))) != std::string::npos;
  };
  ByteRange range{0, text.size()};
  while (left && range.begin < range.end && strips(range.begin))
    range.begin += code_point_bytes(text[range.begin]);
  while (right && range.begin < range.end) {
    size_t last = range.end - 1;
    while ((text[last] & 0xC0) == 0x80) --last;
    if (!strips(last)) break;
    range.end = last;
  }
  return range;
}

}  // namespace latent::text::jinja
