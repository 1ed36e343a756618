// SPDX-License-Identifier: Apache-2.0
// Host side of the portable decode kernel: which instances exist and how they are launched. No CUDA type
// here.
#pragma once

#include <cstddef>

#include "attention/backends/cuda_common/decode_params.h"
#include "tensor/dtype.h"

namespace latent::attention::cuda {

// One compiled kernel.
struct DecodeInstance {
  int rows;
  int kv_rank;
  // Shared memory with two stages; each further one costs stage_bytes.
  int least_shared_bytes;
  int stage_bytes;
  void (*launch)(const DecodeParams& params, int stages, void* stream);
};

// The instance of these types and dims, or null. `q_dtype` is that of the output, too.
const DecodeInstance* find_decode_instance(DType q_dtype, DType cache_dtype, int kv_rank, int rope_dim,
                                           int rows);

inline constexpr int kMaxStages = 5;

}  // namespace latent::attention::cuda
