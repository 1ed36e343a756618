// SPDX-License-Identifier: Apache-2.0
// The portable decode kernel; see decode_cta.cuh.
#pragma once

#include "attention/backends/cuda_sm80/decode_attend.cuh"
#include "attention/backends/cuda_sm80/decode_codes.cuh"
#include "attention/backends/cuda_sm80/decode_merge.cuh"

namespace latent::attention::cuda {

template <class T, class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    decode_kernel(const __grid_constant__ DecodeParams params, const __grid_constant__ PartitionRule rule,
                  int stages) {
  extern __shared__ __align__(16) unsigned char memory[];
  DecodeCta<T, Config>(params, rule, stages, memory).run();
}

}  // namespace latent::attention::cuda
