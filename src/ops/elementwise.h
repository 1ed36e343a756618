// SPDX-License-Identifier: Apache-2.0
// Row-wise operators. All read f32 or bf16, compute in f32 and write f32 or bf16; no reduction crosses a row
// (contract C4). Rows may be strided; the last axis has unit stride.
#pragma once

#include "base/result.h"
#include "ops/linear.h"
#include "tensor/tensor_view.h"

namespace latent::ops {

// out[t] = scale * table[ids[t]]; every id is in [0, vocab) (checked where ids enter).
struct EmbeddingAttrs {
  float scale = 1.0f;
};
struct EmbeddingParams {
  TensorView ids;    // [num_tokens] i32
  WeightView table;  // [vocab, hidden]
  TensorView out;    // [num_tokens, hidden]
  EmbeddingAttrs attrs;
};
Status check(const EmbeddingParams& params);

// out = x / sqrt(mean(x^2) + eps) * weight
struct RmsNormAttrs {
  float eps = 1e-6f;
};
struct RmsNormParams {
  TensorView x;       // [num_tokens, width]
  TensorView weight;  // [width] f32, f16 or bf16
  TensorView out;     // [num_tokens, width]
  RmsNormAttrs attrs;
};
Status check(const RmsNormParams& params);

// out = a + b_scale * b
struct AddAttrs {
  float b_scale = 1.0f;
};
struct AddParams {
  TensorView a, b, out;  // [num_tokens, width]; out may be a
  AddAttrs attrs;
};
Status check(const AddParams& params);

// out = factor * x
struct ScaleAttrs {
  float factor = 1.0f;
};
struct ScaleParams {
  TensorView x, out;  // [num_tokens, width]
  ScaleAttrs attrs;
};
Status check(const ScaleParams& params);

// out = x * sigmoid(x)
struct SiluParams {
  TensorView x, out;  // [num_tokens, width]
};
Status check(const SiluParams& params);

// out = a * b
struct MulParams {
  TensorView a, b, out;  // [num_tokens, width]
};
Status check(const MulParams& params);

// out = silu(gate) * up, without rounding between
struct SiluMulParams {
  TensorView gate, up, out;  // [num_tokens, width]
};
Status check(const SiluMulParams& params);

// out[i] = x[rows[i]]
struct GatherRowsParams {
  TensorView x;     // [num_tokens, width]
  TensorView rows;  // [num_outputs] i32, each in [0, num_tokens)
  TensorView out;   // [num_outputs, width], same dtype as x
};
Status check(const GatherRowsParams& params);

}  // namespace latent::ops
