// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/backends/cuda_sm90/decode_launch.cuh"
#include "attention/backends/cuda_sm90/wide_kernel.cuh"

namespace latent::attention::cuda {

// In tiles of 64 keys. Starting a request costs a CTA about a tile, leaving a piece and merging it four.
inline constexpr PartitionRule kWideRule = {
    .tile_tokens = 64, .fixed_tiles = 1, .least_tiles = 2, .least_stretch = 4, .slack_tiles = 4};

template <class T, class Config>
void launch_wide(const DecodeParams& params, const CUtensorMap& cache, void* stream) {
  launch_decode<Config>(wide_kernel<T, Config>, kWideRule, params, cache, stream);
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
