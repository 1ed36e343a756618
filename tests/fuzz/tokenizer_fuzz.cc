// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tokenizer's files and a text to encode. The input is split at the first four zero bytes into
// tokenizer.json, tiktoken.model, tokenizer_config.json, generation_config.json and the text. Whatever loads
// must encode the text, and a stream must decode the ids as they decode at once.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/stream_decoder.h"
#include "text/utf8.h"

namespace {

std::array<std::string_view, 5> split_input(std::string_view input) {
  std::array<std::string_view, 5> parts;
  for (size_t i = 0; i < 4; ++i) {
    const size_t end = std::min(input.find('\0'), input.size());
    parts[i] = input.substr(0, end);
    input.remove_prefix(std::min(end + 1, input.size()));
  }
  parts[4] = input;
  return parts;
}

void check_ids(const latent::text::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  latent::text::StreamDecoder stream(tokenizer, {.skip_special = false, .at_start = true});
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
    text += stream.push(id);
  }
  text += stream.flush();
  if (text != tokenizer.decode(ids, false) || !latent::text::is_utf8(text)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using latent::text::SpecialTokens;
  const auto [json, ranks, config, generation, text] =
      split_input({reinterpret_cast<const char*>(data), size});
  const auto tokenizer = latent::text::Tokenizer::create({json, ranks, config, generation});
  if (!tokenizer) return 0;
  for (const auto special_tokens : {SpecialTokens::kParse, SpecialTokens::kAsText}) {
    const auto ids = (*tokenizer)->encode(text, special_tokens);
    if (ids) check_ids(**tokenizer, *ids);
  }
  if (const auto ids = (*tokenizer)->encode_prompt(text)) check_ids(**tokenizer, *ids);
  return 0;
}
