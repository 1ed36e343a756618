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
  // Clusters of that many CTAs that run at the same time on this GPU.
  int (*max_clusters)(int cluster);
  // `cluster` CTAs share a part: 1, 2, 4 or 8.
  void (*launch)(const DecodeParams& params, const CUtensorMap& cache, int cluster, void* stream);
};

// The instance of these dims, or null.
const Sm90Instance* find_sm90_instance(DType dtype, int kv_rank, int rope_dim, int rows);

}  // namespace latent::attention::cuda
