// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, with the ids that the model's own tokenizer gives.
//
// A folder's tokenizer.json (BPE over bytes as DeepSeek's and GLM's, or over characters with byte fallback as
// MiniCPM3's) is read, else its tiktoken.model (Kimi-K2, Moonlight); tokenizer_config.json and
// generation_config.json complete it. What a file asks for and this does not do is refused by name.
//
// Text is bytes. Where they are not UTF-8, each maximal subpart of an ill-formed sequence is encoded as
// U+FFFD, which is what a Python program feeds its tokenizer after decode("utf-8", "replace").
//
// Differs from Hugging Face's `tokenizers`, on purpose: text given as SpecialTokens::kAsText never becomes a
// control token, by any path; an added token decodes to its content even if that looks byte-mapped;
// ill-formed runs of byte-fallback tokens decode like any ill-formed text. Characters younger than Unicode 14
// split as unassigned ones.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace latent::text {

// What text that looks like an added token (<|im_end|>, <think>, …) means.
enum class SpecialTokens {
  kParse,   // that token: prompts and the literals of a chat template
  kAsText,  // its characters: whatever a user wrote
};

struct TextPart {
  std::string_view text;
  SpecialTokens special_tokens;
};

// Immutable: any number of threads may call any const function.
class Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> load(const std::filesystem::path& model_folder);

  // The contents of the files; an empty one stands for an absent file.
  struct Files {
    std::string_view tokenizer_json;
    std::string_view tiktoken_ranks;  // used where tokenizer_json is empty
    std::string_view tokenizer_config;
    std::string_view generation_config;
  };
  static Result<std::unique_ptr<Tokenizer>> create(const Files& files);

  ~Tokenizer();

  // Ids of the text alone: no BOS is added. Fails on text of 1 GiB and more, and where a pattern gives up.
  Result<std::vector<int32_t>> encode(std::string_view text, SpecialTokens special_tokens) const;

  // Ids of the parts' texts as one text, in which added tokens are found only wholly inside kParse parts: a
  // chat template's literals can carry control tokens, the messages between them cannot, and words still form
  // across the seams as in one text.
  Result<std::vector<int32_t>> encode(std::span<const TextPart> parts) const;

  // A raw prompt (special tokens parsed) with what the tokenizer's own rule puts around it, BOS usually; what
  // the text already begins or ends with is not added again.
  Result<std::vector<int32_t>> encode_prompt(std::string_view text) const;

  // Text of the ids, always valid UTF-8 (see text/utf8.h); unknown ids are nothing.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  // The bytes that `id` adds to a text, not always whole characters; empty for unknown ids. Lives as long as
  // the tokenizer.
  std::string_view token_bytes(int32_t id) const;

  // True for control tokens, which skip_special leaves out.
  bool is_special(int32_t id) const;
  // True for every added token, special or not: those that SpecialTokens::kAsText keeps out.
  bool is_added(int32_t id) const;

  // The token with this content (for added tokens) or these bytes, if any.
  std::optional<int32_t> find_token(std::string_view content) const;

  // One more than the highest id; a model's embedding may have more rows.
  int32_t vocab_size() const;
  std::optional<int32_t> bos_id() const;
  // The tokens that end a generation: generation_config.json's, then tokenizer_config.json's.
  std::span<const int32_t> eos_ids() const;
  // True if encode_prompt puts BOS in front.
  bool adds_bos() const;

  // What the decoder strips from the start of a whole text; StreamDecoder needs it.
  struct StartRule {
    size_t num_spaces = 0;                   // so many spaces at most
    bool all_spaces_of_first_token = false;  // those, wherever they stand in the first token
  };
  StartRule start_rule() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);

  std::unique_ptr<const Impl> impl_;
};

}  // namespace latent::text
