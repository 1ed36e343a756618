// SPDX-License-Identifier: Apache-2.0
// Elements of operands, for oracles written in a test.
#pragma once

#include <cstddef>
#include <vector>

#include "ops/linear.h"
#include "tensor/convert.h"

namespace latent::testing {

inline double element(const TensorView& view, int64_t row, int64_t col) {
  return element_to_float(view.raw(), view.dtype(), row * view.stride(0) + col * view.stride(1));
}

// One element of a rank-2 weight as f32, its scale applied.
inline float weight_element(const ops::WeightView& w, int64_t row, int64_t col) {
  const float value = element_to_float(w.values.raw(), w.values.dtype(), row * w.values.stride(0) + col);
  return w.scales.empty() ? value : value * w.scales.row<float>(row / w.block_rows)[col / w.block_cols];
}

// `value` after a rounding to dtype.
inline float rounded(float value, DType dtype) {
  std::byte element[4];
  convert_elements(&value, DType::kF32, element, dtype, 1);
  return element_to_float(element, dtype, 0);
}

constexpr DType kWeightTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3};

// All of a rank-3 weight, scales applied.
class WeightValues {
 public:
  explicit WeightValues(const ops::WeightView& w) : rows_(w.rows()), cols_(w.cols()) {
    for (int64_t e = 0; e < w.values.dim(0); ++e)
      for (int64_t n = 0; n < rows_; ++n)
        for (int64_t k = 0; k < cols_; ++k) {
          double value = element(w.values.at(e), n, k);
          if (!w.scales.empty()) value *= element(w.scales.at(e), n / w.block_rows, k / w.block_cols);
          values_.push_back(value);
        }
  }
  double at(int64_t expert, int64_t row, int64_t col) const {
    return values_[static_cast<size_t>((expert * rows_ + row) * cols_ + col)];
  }

 private:
  int64_t rows_, cols_;
  std::vector<double> values_;
};

}  // namespace latent::testing
