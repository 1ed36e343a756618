// SPDX-License-Identifier: Apache-2.0
// Linear layers without bias: out[t, n] = sum_k x[t, k] * weight[n, k].
#pragma once

#include "base/result.h"
#include "tensor/tensor_view.h"

namespace latent::ops {

// A weight of any storage type; every kernel that reads weights takes one.
//   values [rows, cols] or [num_experts | num_heads, rows, cols]; f32, f16, bf16 or f8_e4m3; unit stride
//   along cols scales, for f8_e4m3 only: f32 [.., ceil(rows / block_rows), ceil(cols / block_cols)]; value =
//   values * scale.
//          The last block is clipped (576 rows are 4.5 blocks of 128).
struct WeightView {
  TensorView values;
  TensorView scales;  // may be empty
  int block_rows = 0;
  int block_cols = 0;

  int64_t rows() const { return values.dim(values.rank() - 2); }
  int64_t cols() const { return values.dim(values.rank() - 1); }
  // The matrix of one expert or head of a rank-3 weight.
  WeightView at(int64_t index) const;
};

struct LinearParams {
  TensorView x;       // [num_tokens, in] f32 or bf16, rows may be strided
  WeightView weight;  // [out, in]
  TensorView out;     // [num_tokens, out] f32 or bf16, rows may be strided
};
Status check(const LinearParams& params);

// One small matrix a head: out[t, h, n] = sum_k x[t, h, k] * weight[h, n, k]. Weight absorption uses it
// twice: q_latent = q_nope . W_UK (weight W_UK_T [num_heads, kv_rank, nope_dim]) and v = o_latent . W_UV.
struct HeadLinearParams {
  TensorView x;       // [num_tokens, num_heads, in], tokens and heads may be strided
  WeightView weight;  // [num_heads, out, in], heads may be strided
  TensorView out;     // [num_tokens, num_heads, out]
};
Status check(const HeadLinearParams& params);

}  // namespace latent::ops
