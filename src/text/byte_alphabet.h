// SPDX-License-Identifier: Apache-2.0
// The byte-level alphabet of GPT-2: every byte has a printable character, so that a vocabulary of bytes can
// be written as text. Printable Latin-1 stands for itself, the other 68 bytes are U+0100, U+0101, … in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace latent::text {

char32_t byte_to_character(uint8_t byte);
std::optional<uint8_t> character_to_byte(char32_t character);

// The bytes that `token` stands for; nothing if it has a character outside the alphabet.
std::optional<std::string> bytes_of_mapped(std::string_view token);

}  // namespace latent::text
