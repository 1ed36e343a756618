// SPDX-License-Identifier: Apache-2.0
// What a prefill kernel of any CUDA backend is given: device pointers, strides, numbers.
#pragma once

#include <cstdint>

namespace latent::ops {
struct PrefillAttentionParams;
}

namespace latent::attention::cuda {

// [tokens, heads, width] of T in device memory; strides in elements. Null where the width is 0.
struct PrefillRows {
  const void* data;
  int64_t token_stride, head_stride;  // head stride 0: one row for all heads
};

struct PrefillParams {
  PrefillRows q_nope, q_pe;     // [num_tokens, num_heads, .]
  PrefillRows k_nope, k_pe, v;  // [num_keys, num_heads, .]
  const int32_t* q_starts;      // [num_seqs + 1]
  const int32_t* kv_starts;     // [num_seqs + 1]
  void* out;                    // [num_tokens, num_heads, v_dim], T or float
  float* lse;                   // [num_tokens, num_heads], natural log; may be null
  int64_t out_token_stride, out_head_stride;
  int64_t lse_token_stride, lse_head_stride;
  int num_tokens, num_keys;
  int num_seqs;
  int num_heads;
  bool causal;
  bool out_is_f32;
  float softmax_scale;
  int32_t* next_item;  // zero before and after every launch
};

// The operands of a call on device memory, next_item apart. CHECKs that rows start at multiples of 16 bytes;
// `backend` is named if not.
PrefillParams prefill_params(const ops::PrefillAttentionParams& params, const char* backend);

}  // namespace latent::attention::cuda
