// SPDX-License-Identifier: Apache-2.0
// Host side of the Hopper decode kernels: which instances exist and how they are launched.
#pragma once

#include <cuda.h>

#include "attention/backends/cuda_common/decode_params.h"
#include "tensor/dtype.h"

namespace latent::attention::cuda {

// One compiled kernel.
struct Sm90Instance {
  DType dtype;
  int kv_rank;
  int rope_dim;
  int rows;
  int most_parts;
  void (*launch)(const DecodeParams& params, const CUtensorMap& cache, void* stream);
};

// The instance of these dims, or null.
const Sm90Instance* find_sm90_instance(DType dtype, int kv_rank, int rope_dim, int rows);

}  // namespace latent::attention::cuda
