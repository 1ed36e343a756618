// SPDX-License-Identifier: Apache-2.0
// The operands of a layer as views, checked as far as the host can see them.
#pragma once

#include <latent/attention.h>

#include "capi/desc.h"
#include "ops/mla_attention.h"

namespace latent::capi {

// Names the pointer, stride or count that is wrong. Of host memory lengths and page ids are read; of device
// memory only addresses are looked at.
Result<ops::MlaAttentionParams> read_operands(const latent_attention_operands* given,
                                              const Description& desc);

// Every token of every request lies in a page that there is. Host memory only.
Status check_pages(const ops::MlaAttentionParams& params);

}  // namespace latent::capi
