// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/backends/cuda_sm90/prefill_kernel.cuh"
#include "attention/backends/cuda_sm90/prefill_launch.h"
#include "device/cuda_check.h"

namespace latent::attention::cuda {

template <class T, class Config>
void launch_prefill(const PrefillParams& params, const PrefillMaps& maps, int num_ctas, void* stream) {
  CUDA_CHECK(cudaFuncSetAttribute(prefill_kernel<T, Config>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  Config::kSharedBytes));
  prefill_kernel<T, Config><<<static_cast<unsigned>(num_ctas), Config::kThreads, Config::kSharedBytes,
                              static_cast<cudaStream_t>(stream)>>>(params, maps);
  CUDA_CHECK(cudaGetLastError());
}

template <class T, int kNope, int kRope, int kValue>
const Sm90Prefill* sm90_prefill(DType dtype) {
  using Config = PrefillConfig<kNope, kRope, kValue>;
  static const Sm90Prefill instance{.dtype = dtype,
                                    .boxes = {.query_rows = Config::kGroupRows,
                                              .keys = Config::kKeys,
                                              .nope_dim = Config::kNope,
                                              .rope_dim = Config::kRope,
                                              .v_dim = Config::kValue},
                                    .launch = launch_prefill<T, Config>};
  return &instance;
}

}  // namespace latent::attention::cuda
