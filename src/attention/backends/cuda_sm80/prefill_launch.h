// SPDX-License-Identifier: Apache-2.0
// Host side of the portable prefill kernels: which instances exist and how they are launched.
#pragma once

#include "attention/backends/cuda_common/prefill_params.h"
#include "tensor/dtype.h"

namespace latent::attention::cuda {

// Columns of a row.
struct PrefillWidths {
  int nope, rope, v;
};

// Queries and keys, and values, have at most this many columns.
inline constexpr int kWidestPrefill = 256;

// One compiled kernel.
struct Sm80Prefill {
  int shared_bytes;
  void (*launch)(const PrefillParams& params, const PrefillWidths& widths, int num_sms, void* stream);
};

// The kernel for these widths, or null.
const Sm80Prefill* find_sm80_prefill(DType dtype, const PrefillWidths& widths);

}  // namespace latent::attention::cuda
