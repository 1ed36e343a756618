// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "attention/backends/cuda_sm80/prefill_kernel.cuh"
#include "attention/backends/cuda_sm80/prefill_launch.h"
#include "device/cuda_check.h"

namespace latent::attention::cuda {

template <class T, class Config>
void launch_sm80_prefill(const PrefillParams& params, const PrefillWidths& widths, int num_sms,
                         void* stream) {
  // Keys and values of a section: about half of the L2 of an A100 or H100, as cuda_sm90's.
  constexpr int64_t kSectionBytes = 24 << 20;
  const int64_t key_bytes = int64_t{widths.nope + widths.rope + widths.v} * 2;
  const auto kernel = sm80_prefill_kernel<T, Config>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Config::kSharedBytes));
  kernel<<<static_cast<unsigned>(num_sms * Config::kCtasPerSm), Config::kThreads, Config::kSharedBytes,
           static_cast<cudaStream_t>(stream)>>>(params, widths, static_cast<int>(kSectionBytes / key_bytes));
  CUDA_CHECK(cudaGetLastError());
}

template <class T, class Config>
const Sm80Prefill* sm80_prefill() {
  static const Sm80Prefill instance{.shared_bytes = Config::kSharedBytes,
                                    .launch = launch_sm80_prefill<T, Config>};
  return &instance;
}

}  // namespace latent::attention::cuda
