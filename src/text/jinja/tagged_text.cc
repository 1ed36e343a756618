// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/tagged_text.h"

#include <algorithm>

#include "base/check.h"

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

TaggedText TaggedText::with_bytes(std::string bytes) const {
  CHECK(bytes.size() == size(), "{} bytes for a text of {}", bytes.size(), size());
  TaggedText out;
  out.bytes_ = std::move(bytes);
  out.runs_ = runs_;
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

bool is_valid_utf8(std::string_view text) {
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t n = code_point_bytes(text[i]);
    if ((lead >= 0x80 && lead < 0xC2) || lead > 0xF4 || i + n > text.size()) return false;
    for (size_t j = 1; j < n; ++j)
      if ((static_cast<unsigned char>(text[i + j]) & 0xC0) != 0x80) return false;
    const char32_t cp = code_point_at(text, i);
    if (cp < kSmallest[n] || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) return false;
    i += n;
  }
  return true;
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

void append_utf8(std::string& out, char32_t cp) {
  if (cp < 0x80) {
    out += static_cast<char>(cp);
    return;
  }
  const int extra = cp < 0x800 ? 1 : cp < 0x10000 ? 2 : 3;
  constexpr unsigned char kLead[] = {0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(kLead[extra] | (cp >> (6 * extra)));
  for (int i = extra - 1; i >= 0; --i) out += static_cast<char>(0x80 | ((cp >> (6 * i)) & 0x3F));
}

bool is_space(char32_t cp) {
  return (cp >= 0x09 && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x20) || cp == 0x85 || cp == 0xA0 ||
         cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F ||
         cp == 0x205F || cp == 0x3000;
}

bool has_foreign_case(char32_t cp) {
  // Blocks that hold cased letters: Latin to IPA, Greek to Armenian, Georgian, Cherokee, phonetic and further
  // Latin and Greek, letterlike and circled letters, Glagolitic to Cyrillic, presentation forms, full-width
  // Latin, and the cased scripts and mathematical letters of the supplementary plane.
  constexpr char32_t kBlocks[][2] = {
      {0xAA, 0xAA},       {0xB5, 0xB5},       {0xBA, 0xBA},       {0xC0, 0xD6},       {0xD8, 0xF6},
      {0xF8, 0x2B8},      {0x2C0, 0x2C1},     {0x2E0, 0x2E4},     {0x345, 0x345},     {0x370, 0x58F},
      {0x10A0, 0x10FF},   {0x13A0, 0x13FF},   {0x1C80, 0x1CBF},   {0x1D00, 0x1DBF},   {0x1E00, 0x1FFF},
      {0x2071, 0x2071},   {0x207F, 0x209C},   {0x2100, 0x218F},   {0x24B6, 0x24E9},   {0x2C00, 0x2D2F},
      {0xA640, 0xA69F},   {0xA720, 0xA7FF},   {0xAB30, 0xABBF},   {0xFB00, 0xFB17},   {0xFF21, 0xFF5A},
      {0x10400, 0x107BF}, {0x10C80, 0x10CFF}, {0x118A0, 0x118DF}, {0x16E40, 0x16E7F}, {0x1D400, 0x1D7FF},
      {0x1DF00, 0x1E08F}, {0x1E900, 0x1E943}, {0x1F130, 0x1F189}};
  return cp >= 0x80 && std::any_of(std::begin(kBlocks), std::end(kBlocks),
                                   [&](const auto& block) { return cp >= block[0] && cp <= block[1]; });
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
