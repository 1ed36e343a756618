// SPDX-License-Identifier: Apache-2.0
#include "device/cuda_check.h"
#include "device/cuda_fill.h"

namespace latent {
namespace {

__global__ void fill_words(unsigned char* data, size_t num_bytes, uint32_t word) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i * 4 < num_bytes; i += step)
    for (size_t b = 0; b < 4 && i * 4 + b < num_bytes; ++b)
      data[i * 4 + b] = static_cast<unsigned char>(word >> (8 * b));
}

}  // namespace

void launch_fill_words(void* data, size_t num_bytes, uint32_t word, void* stream) {
  fill_words<<<1024, 256, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<unsigned char*>(data),
                                                                  num_bytes, word);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace latent
