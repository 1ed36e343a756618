// SPDX-License-Identifier: Apache-2.0
// What the reference kernels share: element types chosen at run time, elements read as double.
#pragma once

#include "base/check.h"
#include "ops/linear.h"
#include "tensor/float_types.h"
#include "tensor/tensor_view.h"

namespace latent::kernels::ref {

// Calls fn with a zero of the element type: with_float_type(dtype, [&](auto zero) { using T = decltype(zero);
// … }).
template <class Fn>
void with_float_type(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kF32:
      return fn(float{});
    case DType::kF16:
      return fn(Float16{});
    case DType::kBF16:
      return fn(BFloat16{});
    case DType::kF8E4M3:
      return fn(Float8E4M3{});
    default:
      CHECK(false, "{} is no float type of a kernel", to_string(dtype));
  }
}

// Element k of a row of any weight, exactly: a storage value times its block's scale, in double.
template <class T>
class WeightRow {
 public:
  WeightRow(const ops::WeightView& weight, int64_t row)
      : values_(weight.values.row<T>(row)), block_cols_(weight.block_cols) {
    if (weight.scales.empty()) return;
    scales_ = weight.scales.row<float>(row / weight.block_rows);
    scale_stride_ = weight.scales.stride(1);
  }

  double operator[](int64_t k) const {
    const double value = load_float(values_[k]);
    return scales_ == nullptr ? value : value * double{scales_[k / block_cols_ * scale_stride_]};
  }

 private:
  const T* values_;
  const float* scales_ = nullptr;
  int64_t scale_stride_ = 0;
  int block_cols_;
};

// sum_k x[k * x_stride] * w[k]
template <class X, class W>
double dot(const X* x, int64_t x_stride, const WeightRow<W>& w, int64_t count) {
  double sum = 0;
  for (int64_t k = 0; k < count; ++k) sum += double{load_float(x[k * x_stride])} * w[k];
  return sum;
}

}  // namespace latent::kernels::ref
