// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "attention/backends/cuda_sm90/decode_launch.h"
#include "attention/backends/cuda_sm90/narrow_kernel.cuh"
#include "device/cuda_check.h"

namespace latent::attention::cuda {

// In tiles of 64 keys. A request costs a CTA about two tiles of streaming beside its keys, a cut about as
// much at its end, so pieces of less than two tiles a CTA do not pay.
inline PartitionRule narrow_rule(int cluster) {
  return {.tile_tokens = 64,
          .fixed_tiles = 2 * cluster,
          .least_tiles = cluster,
          .least_stretch = 2 * cluster,
          .merge_tiles = 2 * cluster};
}

// A launch whose grid may be set up while the one before it ends.
struct NarrowLaunch {
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute attributes[2];

  NarrowLaunch(int ctas, int threads, int shared_bytes, int cluster, void* stream) {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(static_cast<unsigned>(ctas));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = attributes;
    config.numAttrs = 2;
  }
};

template <class T, class Config>
void allow_shared_memory() {
  CUDA_CHECK(cudaFuncSetAttribute(narrow_kernel<T, Config>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  Config::kSharedBytes));
}

template <class T, class Config>
int max_narrow_clusters(int cluster) {
  static const auto counts = [] {
    std::array<int, 9> n{};
    allow_shared_memory<T, Config>();
    for (const int c : {1, 2, 4, 8}) {
      const NarrowLaunch launch(c, Config::kThreads, Config::kSharedBytes, c, nullptr);
      CUDA_CHECK(cudaOccupancyMaxActiveClusters(&n[c], narrow_kernel<T, Config>, &launch.config));
    }
    return n;
  }();
  return counts[cluster];
}

template <class T, class Config>
void launch_narrow(const DecodeParams& params, const CUtensorMap& cache, int cluster, void* stream) {
  allow_shared_memory<T, Config>();
  const NarrowLaunch launch(params.num_parts * params.num_row_tiles * cluster, Config::kThreads,
                            Config::kSharedBytes, cluster, stream);
  CUDA_CHECK(
      cudaLaunchKernelEx(&launch.config, narrow_kernel<T, Config>, params, narrow_rule(cluster), cache));
}

// The row tiles of one shape.
template <class T, int kRank, int kRope>
const Sm90Instance* sm90_instance(DType dtype, int rows) {
  const auto make = [&]<int kRows>() -> Sm90Instance {
    using Config = NarrowConfig<T, kRank, kRope, kRows>;
    return {.dtype = dtype,
            .kv_rank = kRank,
            .rope_dim = kRope,
            .rows = kRows,
            .max_clusters = max_narrow_clusters<T, Config>,
            .launch = launch_narrow<T, Config>};
  };
  static const Sm90Instance instances[] = {make.template operator()<16>(), make.template operator()<32>()};
  for (const Sm90Instance& i : instances)
    if (i.rows == rows) return &i;
  return nullptr;
}

}  // namespace latent::attention::cuda
