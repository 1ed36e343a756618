// SPDX-License-Identifier: Apache-2.0
// Copies of host operands in device memory, with their strides and what lies between their rows.
#pragma once

#include <cuda_runtime.h>

#include "attention/backends/cuda_common/device_info.h"
#include "base/check.h"
#include "device/cuda_buffer.h"
#include "device/cuda_check.h"
#include "tensor/tensor_view.h"

namespace latent::testing {

inline bool has_gpu() { return attention::cuda::device_info().present; }

class DeviceTensor {
 public:
  DeviceTensor() = default;
  explicit DeviceTensor(const TensorView& host) : host_(host) {
    if (host.empty()) return;
    Result<CudaBuffer> buffer = CudaBuffer::create(bytes());
    CHECK(buffer.ok(), "{}", buffer.error().message);
    buffer_ = *std::move(buffer);
    CUDA_CHECK(cudaMemcpy(buffer_.data(), host.raw(), bytes(), cudaMemcpyHostToDevice));
  }

  TensorView view() const {
    return host_.empty() ? TensorView()
                         : TensorView(buffer_.data(), host_.dtype(), host_.shape(), host_.strides());
  }
  // What the device has now goes to where the copy came from.
  void download() const {
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaMemcpy(host_.raw(), buffer_.data(), bytes(), cudaMemcpyDeviceToHost));
  }

 private:
  size_t bytes() const {
    if (host_.num_elements() == 0) return 0;
    int64_t last = 0;
    for (int axis = 0; axis < host_.rank(); ++axis) last += (host_.dim(axis) - 1) * host_.stride(axis);
    return static_cast<size_t>(last + 1) * dtype_bytes(host_.dtype());
  }

  TensorView host_;
  CudaBuffer buffer_;
};

}  // namespace latent::testing
