// SPDX-License-Identifier: Apache-2.0
// Small tokenizer.json texts, one for each shape of tokenizer that the models ship.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace latent::text {

// What a mini tokenizer is made of; the defaults are a byte-level BPE as DeepSeek's.
struct MiniTokenizer {
  // Merges "a b" in rank order, in the alphabet of the file ("Ġ" for a space in byte-level ones).
  std::vector<std::string> merges = {};
  std::vector<std::string> more_tokens = {};  // in the vocabulary, reached by no merge
  std::string model_options = "";             // JSON members, with a comma in front
  std::string added_tokens = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})";
  std::string decoder = R"({"type": "ByteLevel"})";
  std::string post_processor = "null";

  // Ids: the 256 bytes in byte order (byte level), or `more_tokens` alone; then more_tokens, then merges.
  std::string json() const;
};

// A MiniCPM3-like one: ▁ for spaces, one in front, byte fallback. Merges over plain characters.
MiniTokenizer sentencepiece_like();

// A byte-level one with "hi" and control tokens: <|user|> 1000, <|end|> 1001, <think> 1002 (not special,
// normalized), <|end|><|end|> 1003.
MiniTokenizer with_control_tokens();

// Aborts the test with the error's message if the tokenizer cannot be made.
std::unique_ptr<Tokenizer> make_tokenizer(const MiniTokenizer& mini, std::string_view config = "");

// Expects that the tokenizer is refused with a message that holds `name`; an empty name: that it is accepted.
void expect_refused(const MiniTokenizer& mini, std::string_view name);

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text,
                            SpecialTokens special_tokens = SpecialTokens::kParse);

// The tokens of a text, as bytes.
std::vector<std::string> tokens_of(const Tokenizer& tokenizer, std::string_view text,
                                   SpecialTokens special_tokens = SpecialTokens::kParse);

}  // namespace latent::text
