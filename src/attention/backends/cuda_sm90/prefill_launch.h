// SPDX-License-Identifier: Apache-2.0
// Host side of the Hopper prefill kernels: which instances exist and how they are launched.
#pragma once

#include "attention/backends/cuda_sm90/prefill_maps.h"

namespace latent::attention::cuda {

// One compiled kernel.
struct Sm90Prefill {
  DType dtype;
  PrefillBoxes boxes;
  void (*launch)(const PrefillParams& params, const PrefillMaps& maps, int num_ctas, void* stream);
};

// The instance of these dims, or null.
const Sm90Prefill* find_sm90_prefill(DType dtype, int nope_dim, int rope_dim, int v_dim);

}  // namespace latent::attention::cuda
