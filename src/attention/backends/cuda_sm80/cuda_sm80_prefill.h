// SPDX-License-Identifier: Apache-2.0
// Attention of prompts on any NVIDIA GPU since Ampere; prefill_cta.cuh describes the kernel.
#pragma once

#include "attention/prefill.h"

namespace latent::attention {

const PrefillBackend& cuda_sm80_prefill();

}  // namespace latent::attention
