// SPDX-License-Identifier: Apache-2.0
// The wide decode kernel; wide_cta.cuh describes it.
#pragma once

#include "attention/backends/cuda_sm90/wide_attend.cuh"
#include "attention/backends/cuda_sm90/wide_merge.cuh"

namespace latent::attention::cuda {

template <class T, class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    wide_kernel(const __grid_constant__ DecodeParams params, const __grid_constant__ PartitionRule rule,
                const __grid_constant__ CUtensorMap map) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(16) unsigned char memory[];
  unsigned char* aligned = memory + (-ptx::shared_address(memory) & 1023);
  WideCta<T, Config>(params, rule, &map, aligned).run();
#endif
}

}  // namespace latent::attention::cuda
