// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/backends/cuda_sm80/decode_kernel.cuh"
#include "attention/backends/cuda_sm80/decode_launch.h"
#include "device/cuda_check.h"

namespace latent::attention::cuda {

// In tiles of 32 keys. Estimates, not yet measured for this kernel: starting a request about six tiles, no
// piece so short that its merge costs more than its keys.
inline constexpr PartitionRule kDecodeRule = {
    .tile_tokens = 32, .fixed_tiles = 6, .least_tiles = 2, .least_stretch = 4, .slack_tiles = 2};

template <class T, class Config>
void launch_decode(const DecodeParams& params, int stages, void* stream) {
  const auto kernel = decode_kernel<T, Config>;
  const int shared = Config::shared_bytes(stages);
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  kernel<<<params.num_parts * params.num_row_tiles, Config::kThreads, shared,
           static_cast<cudaStream_t>(stream)>>>(params, kDecodeRule, stages);
  CUDA_CHECK(cudaGetLastError());
}

template <class T, int kRank, int kRope, int kRows, Codes kCodes>
DecodeInstance make_decode_instance() {
  using Config = DecodeConfig<T, kRank, kRope, kRows, kCodes>;
  return {.rows = kRows,
          .kv_rank = kRank,
          .least_shared_bytes = Config::shared_bytes(2),
          .stage_bytes = Config::kStageBytes,
          .launch = launch_decode<T, Config>};
}

// The three row tiles of one shape.
template <class T, int kRank, int kRope, Codes kCodes>
const DecodeInstance* decode_instance(int rows) {
  static const DecodeInstance instances[] = {make_decode_instance<T, kRank, kRope, 16, kCodes>(),
                                             make_decode_instance<T, kRank, kRope, 32, kCodes>(),
                                             make_decode_instance<T, kRank, kRope, 64, kCodes>()};
  for (const DecodeInstance& i : instances)
    if (i.rows == rows) return &i;
  return nullptr;
}

}  // namespace latent::attention::cuda
