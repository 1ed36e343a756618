// SPDX-License-Identifier: Apache-2.0
#include "text/decoder_spec.h"

#include <charconv>
#include <optional>

#include "text/byte_alphabet.h"

namespace latent::text {
namespace {

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// The byte of "<0xNN>".
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned byte = 0;
  const char* end = token.data() + 5;
  const auto [stop, error] = std::from_chars(token.data() + 3, end, byte, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return static_cast<char>(byte);
}

}  // namespace

std::string DecoderSpec::bytes_of(std::string_view content) const {
  if (byte_level) return bytes_of_mapped(content).value_or(std::string(content));
  std::string text(content);
  for (const auto& [from, to] : replacements) replace_all(text, from, to);
  if (byte_fallback)
    if (const std::optional<char> byte = fallback_byte(text)) text.assign(1, *byte);
  return text;
}

}  // namespace latent::text
