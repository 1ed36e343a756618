// SPDX-License-Identifier: Apache-2.0
// Attention of prompts on Hopper: wgmma and the copy engine; prefill_cta.cuh describes the kernel.
#pragma once

#include "attention/prefill.h"

namespace latent::attention {

const PrefillBackend& cuda_sm90_prefill();

}  // namespace latent::attention
