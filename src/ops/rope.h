// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding. One table of cos and sin is made at load (model/rope_table) and read by every
// user, so that YaRN's factors and the rotation style have one owner (contract C10).
#pragma once

#include "base/result.h"
#include "tensor/tensor_view.h"

namespace latent::ops {

enum class RopeStyle {
  kInterleaved,  // pairs (2i, 2i+1), as DeepSeek stores them
  kHalves,       // pairs (i, i + rope_dim/2), "NeoX"
};

struct RopeAttrs {
  RopeStyle style = RopeStyle::kInterleaved;
};

// Rotates x[t, h, :] by the angles of positions[t].
struct RopeParams {
  TensorView x;          // [num_tokens, num_heads, rope_dim] f32 or bf16; tokens and heads may be strided
  TensorView positions;  // [num_tokens] i32, each in [0, max_positions)
  TensorView cos_sin;    // [max_positions, rope_dim] f32: rope_dim/2 cosines, then rope_dim/2 sines, both
                         // already multiplied by YaRN's attention factor
  TensorView out;        // [num_tokens, num_heads, rope_dim]; may be x
  RopeAttrs attrs;
};
Status check(const RopeParams& params);

}  // namespace latent::ops
