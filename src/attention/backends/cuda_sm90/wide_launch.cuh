// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/backends/cuda_sm90/decode_launch.h"
#include "attention/backends/cuda_sm90/wide_kernel.cuh"
#include "device/cuda_check.h"

namespace latent::attention::cuda {

// In tiles of 64 keys. Starting a request costs a CTA about a tile, leaving a piece and merging it four.
inline constexpr PartitionRule kWideRule = {
    .tile_tokens = 64, .fixed_tiles = 1, .least_tiles = 2, .least_stretch = 4, .slack_tiles = 4};

// The grid may be set up while the one before it ends.
template <class T, class Config>
void launch_wide(const DecodeParams& params, const CUtensorMap& cache, void* stream) {
  const auto kernel = wide_kernel<T, Config>;
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Config::kSharedBytes));
  cudaLaunchAttribute overlap;
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(params.num_parts * params.num_row_tiles));
  config.blockDim = dim3(Config::kThreads);
  config.dynamicSmemBytes = Config::kSharedBytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &overlap;
  config.numAttrs = 1;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, params, kWideRule, cache));
}

template <class T, int kRank, int kRope>
const Sm90Instance* wide_instance() {
  using Config = WideConfig<T, kRank, kRope>;
  static const Sm90Instance instance = {.kv_rank = kRank,
                                        .rows = Config::kRows,
                                        .most_parts = 1 << 20,
                                        .code_stride = 0,
                                        .launch = launch_wide<T, Config>};
  return &instance;
}

}  // namespace latent::attention::cuda
