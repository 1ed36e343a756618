// SPDX-License-Identifier: Apache-2.0
// Multi-head attention of prompt tokens over keys and values that were projected up before: what the
// multi-head form of mla_attention.h comes to where the projection is a matrix product of its own (on a
// GPU). Requests lie one after the other; of each, rows and keys are given by cumulative offsets.
//
//   scores = scale * (q_nope . k_nope + q_pe . k_pe),  out = softmax(scores) . v,  lse = log sum exp(scores)
//
// Causal: the last query row of a request is at its last key's position and sees every key, each earlier row
// one key less; so new tokens over themselves, or over a cached context with them at its end. Not causal:
// every row sees every key; for chunks of a context, whose states merge by their LSE (mla_attention.h). A
// chunk may be empty.
#pragma once

#include "base/result.h"
#include "tensor/tensor_view.h"

namespace latent::ops {

struct PrefillAttentionAttrs {
  int num_heads = 0;
  int nope_dim = 0;  // 0: queries and keys are rotated whole
  int rope_dim = 0;  // 0: not at all
  int v_dim = 0;
  float softmax_scale = 0;  // with the squared YaRN factor (contract C10)
  bool causal = true;
};

struct PrefillAttentionParams {
  // Rows, heads may be strided. Queries, keys and values have one type.
  TensorView q_nope;     // [num_tokens, num_heads, nope_dim]
  TensorView q_pe;       // [num_tokens, num_heads, rope_dim], rotated
  TensorView k_nope;     // [num_keys, num_heads, nope_dim]
  TensorView k_pe;       // [num_keys, num_heads, rope_dim]; stride 0 over heads that share one row
  TensorView v;          // [num_keys, num_heads, v_dim]
  TensorView q_starts;   // [num_seqs + 1] i32, ascending from 0; rows from the last on are padding
  TensorView kv_starts;  // [num_seqs + 1] i32, the same of keys; those from the last on are never read
  TensorView out;  // [num_tokens, num_heads, v_dim], of the operands' type or f32; every row is written, rows
                   // without keys and padded rows as zero (contract C1)
  TensorView lse;  // may be empty; [num_tokens, num_heads] f32, natural log, -inf without keys (contract C9)
  PrefillAttentionAttrs attrs;
};
Status check(const PrefillAttentionParams& params);

}  // namespace latent::ops
