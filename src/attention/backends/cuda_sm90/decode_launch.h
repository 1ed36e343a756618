// SPDX-License-Identifier: Apache-2.0
// Host side of the Hopper decode kernels: which instances exist and how they are launched.
#pragma once

#include <cuda.h>

#include "attention/backends/cuda_common/decode_params.h"
#include "tensor/dtype.h"

namespace latent::attention::cuda {

// One compiled kernel.
struct Sm90Instance {
  int kv_rank;
  int rows;
  int most_parts;
  int code_stride;  // as in cache_map.h
  void (*launch)(const DecodeParams& params, const CUtensorMap& cache, void* stream);
};

// The instance of these types and dims, or null. `q_dtype` is that of the output, too.
const Sm90Instance* find_sm90_instance(DType q_dtype, DType cache_dtype, int kv_rank, int rope_dim, int rows);

}  // namespace latent::attention::cuda
