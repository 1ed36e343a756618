// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/backends/cuda_sm90/decode_launch.h"
#include "attention/backends/cuda_sm90/narrow_kernel.cuh"
#include "device/cuda_check.h"

namespace latent::attention::cuda {

// In tiles of 64 keys. A request costs a CTA about two tiles of streaming beside its keys, a cut about as
// much at its end, so pieces of less than two tiles do not pay.
inline constexpr PartitionRule kNarrowRule = {
    .tile_tokens = 64, .fixed_tiles = 2, .least_tiles = 1, .least_stretch = 2, .slack_tiles = 4};

// The grid may be set up while the one before it ends.
template <class T, class Config>
void launch_narrow(const DecodeParams& params, const CUtensorMap& cache, void* stream) {
  CUDA_CHECK(cudaFuncSetAttribute(narrow_kernel<T, Config>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  Config::kSharedBytes));
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
  CUDA_CHECK(cudaLaunchKernelEx(&config, narrow_kernel<T, Config>, params, kNarrowRule, cache));
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
