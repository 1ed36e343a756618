// SPDX-License-Identifier: Apache-2.0
// TensorView: pointer, dtype, shape, strides. Never owns; copying is cheap. Whoever owns the memory must
// outlive the view. Strides are in elements; products of indices and strides are 64-bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace latent {

class TensorView {
 public:
  TensorView() = default;
  // Row-major contiguous.
  TensorView(void* data, DType dtype, const Shape& shape);
  TensorView(void* data, DType dtype, const Shape& shape, const Shape& strides)
      : data_(data), dtype_(dtype), shape_(shape), strides_(strides) {}

  bool empty() const { return data_ == nullptr; }  // "not given"; a view of 0 elements may be non-empty
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }
  int rank() const { return shape_.rank(); }
  int64_t dim(int axis) const { return shape_[axis]; }
  int64_t stride(int axis) const { return strides_[axis]; }
  int64_t num_elements() const { return shape_.num_elements(); }
  int64_t num_bytes() const { return num_elements() * static_cast<int64_t>(dtype_bytes(dtype_)); }
  bool is_contiguous() const;

  void* raw() const { return data_; }
  // Typed pointer; CHECKs the dtype's width, not its name (ids: data<int32_t>(), bf16: data<BFloat16>()).
  template <class T>
  T* data() const {
    DCHECK(sizeof(T) == dtype_bytes(dtype_), "a {} tensor read as elements of {} bytes", to_string(dtype_),
           sizeof(T));
    return static_cast<T*>(data_);
  }
  // Address of row `index` of the outermost axis.
  template <class T>
  T* row(int64_t index) const {
    return data<T>() + index * strides_[0];
  }

  // Sub-range [begin, end) of an axis; same strides.
  TensorView slice(int axis, int64_t begin, int64_t end) const;
  // The view of one index of the outermost axis, one rank less.
  TensorView at(int64_t index) const;
  // New shape over the same elements; CHECKs that the strides allow it without a copy.
  TensorView reshape(const Shape& shape) const;
  TensorView transpose(int axis_a, int axis_b) const;

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  Shape shape_;
  Shape strides_;
};

// "bf16[7, 576] strides [640, 1]"
std::string to_string(const TensorView& view);

// Copies elements between views of equal shape and dtype, any strides.
void copy_elements(const TensorView& from, const TensorView& to);

}  // namespace latent
