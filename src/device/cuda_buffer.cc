// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_buffer.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "device/cuda_check.h"
#include "device/cuda_fill.h"

namespace latent {

void cuda_failed(const char* file, int line, const char* call, cudaError_t error) {
  std::fprintf(stderr, "latent: CUDA error at %s:%d: %s: %s (%s)\n", file, line, call,
               cudaGetErrorString(error), cudaGetErrorName(error));
  std::abort();
}

Result<CudaBuffer> CudaBuffer::create(size_t num_bytes, ElementKind kind, PoisonPattern pattern) {
  CudaBuffer buffer;
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, num_bytes > 0 ? num_bytes : 1);
  if (error != cudaSuccess) {
    cudaGetLastError();  // clear it: the caller decides
    return make_error(ErrorCode::kExhausted, "no device memory for {} bytes: {}", num_bytes,
                      cudaGetErrorString(error));
  }
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_bytes_ = num_bytes;
  fill_poison_device(data, num_bytes, kind, pattern, nullptr);
  CUDA_CHECK(cudaDeviceSynchronize());
  return buffer;
}

CudaBuffer::~CudaBuffer() {
  if (data_ != nullptr) CUDA_CHECK(cudaFree(data_));
}

void fill_poison_device(void* data, size_t num_bytes, ElementKind kind, PoisonPattern pattern, void* stream) {
  if (pattern == PoisonPattern::kNone || num_bytes == 0) return;
  uint32_t word = 0;
  fill_poison(&word, sizeof word, kind, pattern);
  launch_fill_words(data, num_bytes, word, stream);
}

}  // namespace latent
