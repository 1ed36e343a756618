// SPDX-License-Identifier: Apache-2.0
// Operators that only constant folding runs.
#pragma once

#include "base/result.h"
#include "ops/linear.h"
#include "tensor/tensor_view.h"

namespace latent::ops {

// out = values * scales, block by block.
struct DequantizeParams {
  WeightView weight;  // [rows, cols], any storage type
  TensorView out;     // [rows, cols] f32, f16 or bf16
};
Status check(const DequantizeParams& params);

// out is a contiguous copy of x with axes a and b exchanged.
struct TransposeAttrs {
  int axis_a = 0;
  int axis_b = 1;
};
struct TransposeParams {
  TensorView x;
  TensorView out;
  TransposeAttrs attrs;
};
Status check(const TransposeParams& params);

}  // namespace latent::ops
