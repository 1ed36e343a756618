// SPDX-License-Identifier: Apache-2.0
// Descriptions and limits, checked and in the terms of attention/.
#pragma once

#include <latent/attention.h>

#include "attention/backend.h"

namespace latent::capi {

struct Description {
  attention::MlaDesc mla;
  DType out_dtype = DType::kBF16;
};

// Names the field and the value that is wrong. Whether a backend serves it is not asked here.
Result<Description> read_desc(const latent_attention_desc* given);
Result<attention::Limits> read_limits(const latent_attention_limits* given, const attention::MlaDesc& desc);

}  // namespace latent::capi
