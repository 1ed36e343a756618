// SPDX-License-Identifier: Apache-2.0
// The components of tokenizer.json around the model. Each function refuses by name what is not supported.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "text/tokenizer_parts.h"

namespace latent::text {

Status read_normalizer(const nlohmann::json& json, Normalizer& out);

struct PreTokenizerShape {
  PreTokenizer steps;
  bool byte_level = false;  // the model works on bytes
};
Result<PreTokenizerShape> read_pre_tokenizer(const nlohmann::json& json);

Result<DecoderSpec> read_decoder(const nlohmann::json& json);

// Fills parts.prefix and parts.suffix.
Status read_post_processor(const nlohmann::json& json, TokenizerParts& parts);

}  // namespace latent::text
