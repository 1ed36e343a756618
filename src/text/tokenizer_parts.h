// SPDX-License-Identifier: Apache-2.0
// What the readers (tokenizer.json, tiktoken ranks) make and Tokenizer is built from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder_spec.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace latent::text {

struct TokenizerParts {
  struct Entry {
    std::string content;
    int32_t id;
  };

  // Ids are below this; far above any vocabulary, low enough to bound the memory a file can ask for.
  static constexpr int64_t kMaxTokens = 1 << 22;

  std::vector<Entry> vocabulary;  // the model's, without added tokens that it does not hold
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  DecoderSpec decoder;
  BpeSpec bpe;  // `tokens` is filled in by Tokenizer, from the vocabulary
  // TemplateProcessing: the ids around a text that stands alone.
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};

// tokenizer_config.json, as far as ids depend on it.
struct TokenizerConfig {
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::string tokenizer_class;
  std::vector<AddedToken> added_tokens;  // added_tokens_decoder
};

Result<TokenizerParts> parse_tokenizer_json(std::string_view json);
Result<TokenizerConfig> parse_tokenizer_config(std::string_view json);
// eos_token_id of generation_config.json: one id, a list, or none.
Result<std::vector<int32_t>> parse_generation_eos(std::string_view json);

// tiktoken ranks: lines of "BASE64 RANK", the rank being the id. `config` names the control tokens; the 256 +
// 2 ids after the ranks that it does not name are reserved ones, as in Kimi's and Moonlight's own code.
Result<TokenizerParts> parse_tiktoken(std::string_view ranks, const TokenizerConfig& config);

}  // namespace latent::text
