// SPDX-License-Identifier: Apache-2.0
// The decoder of tokenizer.json.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace latent::text {

// How the content of a token becomes bytes of text.
struct DecoderSpec {
  bool byte_level = false;  // through the byte alphabet; added tokens are not
  std::vector<std::pair<std::string, std::string>> replacements;
  bool byte_fallback = false;             // "<0xNN>" is a byte
  size_t strip_leading_spaces = 0;        // of a whole text, at most that many
  bool first_token_drops_spaces = false;  // Metaspace: the first token of a text loses all of its spaces

  std::string bytes_of(std::string_view content) const;
};

}  // namespace latent::text
