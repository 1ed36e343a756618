// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention over the paged cache, in both its forms. Keys and values are always read back
// from the cache, in the cache's precision, those of this step included (the cache write precedes it).
//
//   absorbed    scores = scale * (q_nope . latent + q_pe . k_pe) with q_nope already in the latent (width
//   kv_rank);
//               out = softmax(scores) . latent, width kv_rank. For generated tokens.
//   multi-head  the latent is projected up by kv_b into k_nope and v of each head, in chunks of the context
//   that are
//               merged by their LSE; scores = scale * (q_nope . k_nope + q_pe . k_pe), width nope_dim +
//               rope_dim; out = softmax(scores) . v, width v_dim. For prompt tokens.
//
// Query row t of request s (q_starts[s] <= t < q_starts[s+1]) sits at position kv_lens[s] - q_len + (t -
// q_starts[s]) and sees the keys up to itself.
#pragma once

#include "base/result.h"
#include "ops/linear.h"
#include "tensor/tensor_view.h"

namespace latent::ops {

enum class AttentionForm { kAbsorbed, kMultiHead };

struct MlaAttentionAttrs {
  AttentionForm form = AttentionForm::kAbsorbed;
  int num_heads = 0;
  int kv_rank = 0;
  int rope_dim = 0;
  int nope_dim = 0;
  int v_dim = 0;
  int page_tokens = 0;
  float softmax_scale = 0;  // with the squared YaRN factor (contract C10)
};

// Who the rows belong to. All i32.
struct AttentionBatch {
  TensorView q_starts;     // [num_seqs + 1], ascending from 0; rows from q_starts[num_seqs] on are padding
  TensorView kv_lens;      // [num_seqs], tokens in the cache, this step's included; 0 for a padded request
  TensorView block_table;  // [num_seqs, max_pages]; entries past a request's last page are never read
};

struct MlaAttentionParams {
  TensorView q_nope;  // [num_tokens, num_heads, kv_rank] (absorbed) or [.., nope_dim]; tokens and heads may
                      // be strided
  TensorView q_pe;    // [num_tokens, num_heads, rope_dim], rotated; tokens and heads may be strided
  TensorView cache;   // [num_pages, page_tokens, width] of any type that kv_layout.h knows
  AttentionBatch batch;
  WeightView kv_b;  // multi-head only: [num_heads * (nope_dim + v_dim), kv_rank]
  TensorView out;   // [num_tokens, num_heads, kv_rank] (absorbed) or [.., v_dim]; every row is written, rows
                    // without keys and padded rows as zero (contract C1)
  TensorView lse;   // may be empty; [num_tokens, num_heads] f32, natural log, -inf without keys (contract C9)
  MlaAttentionAttrs attrs;
  float cache_scale = 1;  // of an f8_e4m3 cache: the one it was written with; others do not look at it
};
Status check(const MlaAttentionParams& params);

// (out_a, lse_a) becomes the merge of two partial states of the same rows. Total: empty with empty is empty.
struct MergeStatesParams {
  TensorView out_a;  // [num_tokens, num_heads, width] f32; updated
  TensorView lse_a;  // [num_tokens, num_heads] f32; updated
  TensorView out_b;  // [num_tokens, num_heads, width] f32; strides of its own
  TensorView lse_b;  // [num_tokens, num_heads] f32
  TensorView out;    // may be empty; else [num_tokens, num_heads, width] f32, f16 or bf16: takes the merged
                     // outputs in place of out_a, which is left as it was
};
Status check(const MergeStatesParams& params);

}  // namespace latent::ops
