// SPDX-License-Identifier: Apache-2.0
// The Hopper prefill kernel; prefill_cta.cuh describes it.
#pragma once

#include "attention/backends/cuda_sm90/prefill_attend.cuh"

namespace latent::attention::cuda {

template <class T, class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    prefill_kernel(const __grid_constant__ PrefillParams params, const __grid_constant__ PrefillMaps maps) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(16) unsigned char memory[];
  unsigned char* aligned = memory + (-ptx::shared_address(memory) & 1023);
  PrefillCta<T, Config>(params, maps, aligned).run();
#endif
}

}  // namespace latent::attention::cuda
