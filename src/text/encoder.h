// SPDX-License-Identifier: Apache-2.0
// The way from text to ids: added tokens, normalizer, pre-tokenizer, BPE.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"

namespace latent::text {

// Immutable: encode may be called from any number of threads.
class Encoder {
 public:
  // Takes what it needs out of `parts`; the vocabulary, added tokens and decoder are only read.
  static Result<Encoder> create(TokenizerParts& parts);

  Result<std::vector<int32_t>> encode(std::span<const TextPart> parts) const;

 private:
  Encoder(Bpe bpe, AddedTokenFinder raw, AddedTokenFinder normalized, AddedTokenFinder all)
      : bpe_(std::move(bpe)),
        raw_finder_(std::move(raw)),
        normalized_finder_(std::move(normalized)),
        all_finder_(std::move(all)) {}

  template <class OnText>
  static Status each_segment(const AddedTokenFinder& finder, std::string_view text, Span within,
                             const std::vector<Span>& trusted, std::vector<int32_t>& ids, OnText&& on_text);
  Status encode_words(std::string_view text, bool at_start, std::vector<int32_t>& ids) const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  Bpe bpe_;
  AddedTokenFinder raw_finder_;         // tokens that are looked for in the text as given
  AddedTokenFinder normalized_finder_;  // those looked for in normalized text
  AddedTokenFinder all_finder_;         // all of them, in the text as given
};

}  // namespace latent::text
