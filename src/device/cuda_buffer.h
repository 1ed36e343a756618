// SPDX-License-Identifier: Apache-2.0
// CudaBuffer: owns device memory of the current device. Poisoned under a pattern, like HostBuffer.
#pragma once

#include <cstddef>
#include <utility>

#include "base/result.h"
#include "device/poison.h"

namespace latent {

class CudaBuffer {
 public:
  CudaBuffer() = default;
  CudaBuffer(CudaBuffer&& other) noexcept { swap(other); }
  CudaBuffer& operator=(CudaBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;
  ~CudaBuffer();

  // kExhausted if the device has no memory. `num_bytes` may be 0.
  static Result<CudaBuffer> create(size_t num_bytes, ElementKind kind = ElementKind::kBytes,
                                   PoisonPattern pattern = PoisonPattern::kNone);

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }

 private:
  void swap(CudaBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
  }

  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

// Fills device memory with a pattern; asynchronous on the stream (a cudaStream_t).
void fill_poison_device(void* data, size_t num_bytes, ElementKind kind, PoisonPattern pattern, void* stream);

}  // namespace latent
