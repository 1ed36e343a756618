// SPDX-License-Identifier: Apache-2.0
// Tensor: owns contiguous host memory. Move-only; a copy is asked for by name.
#pragma once

#include "device/host_buffer.h"
#include "tensor/tensor_view.h"

namespace latent {

class Tensor {
 public:
  Tensor() = default;

  // Contents are unspecified until written, and poisoned under a poison pattern. kExhausted without memory.
  static Result<Tensor> create(DType dtype, const Shape& shape, PoisonPattern pattern = default_poison());

  const TensorView& view() const { return view_; }
  DType dtype() const { return view_.dtype(); }
  const Shape& shape() const { return view_.shape(); }
  template <class T>
  T* data() const {
    return view_.data<T>();
  }

  Result<Tensor> clone() const;

 private:
  HostBuffer buffer_;
  TensorView view_;
};

}  // namespace latent
