// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "attention/backends/cuda_common/partition.cuh"
#include "attention/backends/cuda_sm90/decode_launch.h"
#include "device/cuda_check.h"

namespace latent::attention::cuda {

// A grid of num_parts x num_row_tiles CTAs of Config's size; it may be set up while the one before it ends.
template <class Config, class Kernel>
void launch_decode(Kernel kernel, const PartitionRule& rule, const DecodeParams& params,
                   const CUtensorMap& cache, void* stream) {
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
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, params, rule, cache));
}

}  // namespace latent::attention::cuda
