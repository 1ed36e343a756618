// SPDX-License-Identifier: Apache-2.0
// Host operands in device memory, with their strides and with what lies between their rows.
#pragma once

#include <cuda_runtime.h>

#include "base/check.h"
#include "base/math.h"
#include "device/cuda_buffer.h"
#include "device/cuda_check.h"
#include "tensor/tensor_view.h"

namespace latent::testing {

// Bytes from the first to the last that a view addresses.
inline size_t extent_bytes(const TensorView& view) {
  if (view.empty() || view.num_elements() == 0) return 0;
  int64_t last = 0;
  for (int axis = 0; axis < view.rank(); ++axis) last += (view.dim(axis) - 1) * view.stride(axis);
  return static_cast<size_t>(last + 1) * dtype_bytes(view.dtype());
}

// Copies of operands, side by side in one allocation that is poisoned first.
class DeviceCopies {
 public:
  DeviceCopies(size_t num_bytes, PoisonPattern poison) {
    Result<CudaBuffer> buffer = CudaBuffer::create(num_bytes, ElementKind::kBFloat16, poison);
    CHECK(buffer.ok(), "{}", buffer.error().message);
    buffer_ = *std::move(buffer);
  }

  static size_t room_for(size_t num_bytes) { return round_up(num_bytes + 1, size_t{256}); }

  std::byte* take(size_t num_bytes) {
    std::byte* at = buffer_.data() + used_;
    used_ += room_for(num_bytes);
    CHECK(used_ <= buffer_.size_bytes(), "{} bytes of operands in {}", used_, buffer_.size_bytes());
    return at;
  }
  // Without its first `skipped` indices of the outermost axis.
  TensorView upload(const TensorView& host, int64_t skipped = 0) {
    if (host.empty()) return {};
    const size_t bytes = extent_bytes(host);
    std::byte* at = take(bytes);
    const size_t from =
        skipped == 0 ? 0 : static_cast<size_t>(skipped * host.stride(0)) * dtype_bytes(host.dtype());
    CUDA_CHECK(cudaMemcpy(at + from, static_cast<const std::byte*>(host.raw()) + from, bytes - from,
                          cudaMemcpyHostToDevice));
    return {at, host.dtype(), host.shape(), host.strides()};
  }

 private:
  CudaBuffer buffer_;
  size_t used_ = 0;
};

inline void download(const TensorView& device, const TensorView& host) {
  if (host.empty()) return;
  CUDA_CHECK(cudaMemcpy(host.raw(), device.raw(), extent_bytes(host), cudaMemcpyDeviceToHost));
}

}  // namespace latent::testing
