// SPDX-License-Identifier: Apache-2.0
#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace latent::text {
namespace {

constexpr char32_t kFirstStandIn = 0x100;
constexpr size_t kNumStandIns = 68;

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

constexpr std::array<uint8_t, kNumStandIns> make_stand_ins() {
  std::array<uint8_t, kNumStandIns> bytes{};
  size_t count = 0;
  for (unsigned byte = 0; byte < 256; ++byte)
    if (!stands_for_itself(byte)) bytes[count++] = static_cast<uint8_t>(byte);
  return bytes;
}

constexpr std::array<uint8_t, kNumStandIns> kStandIns = make_stand_ins();

}  // namespace

char32_t byte_to_character(uint8_t byte) {
  if (stands_for_itself(byte)) return byte;
  size_t index = 0;
  while (kStandIns[index] != byte) ++index;
  return kFirstStandIn + static_cast<char32_t>(index);
}

std::optional<uint8_t> character_to_byte(char32_t c) {
  if (c < 256 && stands_for_itself(c)) return static_cast<uint8_t>(c);
  if (c >= kFirstStandIn && c < kFirstStandIn + kNumStandIns) return kStandIns[c - kFirstStandIn];
  return std::nullopt;
}

std::optional<std::string> bytes_of_mapped(std::string_view token) {
  std::string bytes;
  while (!token.empty()) {
    const Utf8Unit unit = scan_utf8(token);
    if (unit.kind != Utf8Kind::kCharacter) return std::nullopt;
    const std::optional<uint8_t> byte = character_to_byte(code_point(token.substr(0, unit.length)));
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    token.remove_prefix(unit.length);
  }
  return bytes;
}

}  // namespace latent::text
