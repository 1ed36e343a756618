// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/backends/cuda_sm90/decode_launch.cuh"
#include "attention/backends/cuda_sm90/narrow_kernel.cuh"

namespace latent::attention::cuda {

// In tiles of 64 keys. A request costs a CTA about two tiles of streaming beside its keys, a cut about as
// much at its end, so pieces of less than two tiles do not pay.
inline constexpr PartitionRule kNarrowRule = {
    .tile_tokens = 64, .fixed_tiles = 2, .least_tiles = 1, .least_stretch = 2, .slack_tiles = 4};

template <class T, class Config>
void launch_narrow(const DecodeParams& params, const CUtensorMap& cache, void* stream) {
  launch_decode<Config>(narrow_kernel<T, Config>, kNarrowRule, params, cache, stream);
}

// The row tiles of one shape.
template <class T, int kRank, int kRope, Codes kCodes>
const Sm90Instance* sm90_instance(int rows) {
  const auto make = [&]<int kRows>() -> Sm90Instance {
    using Config = NarrowConfig<T, kRank, kRope, kRows, kCodes>;
    return {.kv_rank = kRank,
            .rows = kRows,
            .most_parts = Config::kMostParts,
            .code_stride = Config::kHasCodes ? Config::CodeRow::kStride : 0,
            .launch = launch_narrow<T, Config>};
  };
  static const Sm90Instance instances[] = {make.template operator()<16>(), make.template operator()<32>()};
  for (const Sm90Instance& i : instances)
    if (i.rows == rows) return &i;
  return nullptr;
}

}  // namespace latent::attention::cuda
