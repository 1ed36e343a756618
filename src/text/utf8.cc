// SPDX-License-Identifier: Apache-2.0
#include "text/utf8.h"

#include <cstring>

namespace latent::text {
namespace {

// What may follow a lead byte: how many bytes the character has, and the range of the second one (the only
// one whose range depends on the lead).
struct Lead {
  uint8_t length;  // 0: not a lead byte
  uint8_t second_min;
  uint8_t second_max;
};

constexpr Lead classify_lead(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};  // continuation bytes and overlong leads
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};  // shorter forms are overlong
  if (byte == 0xED) return {3, 0x80, 0x9F};  // the rest are surrogates
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // up to U+10FFFF
  return {0, 0, 0};
}

size_t ascii_prefix(std::string_view bytes) {
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (i < bytes.size() && static_cast<uint8_t>(bytes[i]) < 0x80) ++i;
  return i;
}

// Bytes from the front that are whole characters.
size_t valid_prefix(std::string_view bytes) {
  size_t i = 0;
  while (i < bytes.size()) {
    i += ascii_prefix(bytes.substr(i));
    if (i == bytes.size()) break;
    const Utf8Unit unit = scan_utf8(bytes.substr(i));
    if (unit.kind != Utf8Kind::kCharacter) break;
    i += unit.length;
  }
  return i;
}

// Appends the repaired form of `bytes` and returns the incomplete tail, which is not appended.
std::string_view append_repaired(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const size_t valid = valid_prefix(bytes);
    out.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    const Utf8Unit unit = scan_utf8(bytes);
    if (unit.kind == Utf8Kind::kIncomplete) break;
    out.append(kReplacementCharacter);
    bytes.remove_prefix(unit.length);
  }
  return bytes;
}

}  // namespace

Utf8Unit scan_utf8(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const Lead lead = classify_lead(at(0));
  if (lead.length == 0) return {Utf8Kind::kIllFormed, 1};
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {Utf8Kind::kIncomplete, i};
    const uint8_t low = i == 1 ? lead.second_min : 0x80;
    const uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (at(i) < low || at(i) > high) return {Utf8Kind::kIllFormed, i};
  }
  return {Utf8Kind::kCharacter, lead.length};
}

char32_t code_point(std::string_view character) {
  const auto first = static_cast<uint8_t>(character[0]);
  if (first < 0x80) return first;
  char32_t value = first & (0x3Fu >> (character.size() - 1));
  for (const char byte : character.substr(1, classify_lead(first).length - 1u))
    value = value << 6 | (static_cast<uint8_t>(byte) & 0x3Fu);
  return value;
}

void append_utf8(std::string& out, char32_t c) {
  const auto tail = [&](int shift) { out.push_back(static_cast<char>(0x80 | ((c >> shift) & 0x3F))); };
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | c >> 12));
    tail(6), tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0 | c >> 18));
    tail(12), tail(6), tail(0);
  }
}

bool is_utf8(std::string_view bytes) { return valid_prefix(bytes) == bytes.size(); }

std::string repair_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  if (!append_repaired(bytes, out).empty()) out.append(kReplacementCharacter);
  return out;
}

void Utf8Repair::push(std::string_view bytes, std::string& out) {
  if (held_.empty()) {
    held_ = append_repaired(bytes, out);
    return;
  }
  const std::string joined = held_.append(bytes);
  held_ = append_repaired(joined, out);
}

void Utf8Repair::flush(std::string& out) {
  if (!held_.empty()) out.append(kReplacementCharacter);
  held_.clear();
}

}  // namespace latent::text
