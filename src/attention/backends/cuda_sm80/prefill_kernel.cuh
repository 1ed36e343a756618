// SPDX-License-Identifier: Apache-2.0
// The portable prefill kernel; prefill_cta.cuh describes it.
#pragma once

#include "attention/backends/cuda_sm80/prefill_cta.cuh"

namespace latent::attention::cuda {

template <class T, class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kCtasPerSm)
    sm80_prefill_kernel(const __grid_constant__ PrefillParams params,
                        const __grid_constant__ PrefillWidths widths, int section_keys) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) unsigned char memory[];
  Sm80PrefillCta<T, Config>(params, widths, section_keys, memory).run();
#endif
}

}  // namespace latent::attention::cuda
