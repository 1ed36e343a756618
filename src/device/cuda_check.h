// SPDX-License-Identifier: Apache-2.0
// CUDA_CHECK: CUDA said no. Prints the call, its place and CUDA's words, then aborts; on in release builds.
#pragma once

#include <cuda_runtime.h>

namespace latent {

[[noreturn]] void cuda_failed(const char* file, int line, const char* call, cudaError_t error);

}  // namespace latent

#define CUDA_CHECK(call)                                                                                     \
  do {                                                                                                       \
    const cudaError_t cuda_check_error = (call);                                                             \
    if (cuda_check_error != cudaSuccess) ::latent::cuda_failed(__FILE__, __LINE__, #call, cuda_check_error); \
  } while (false)
