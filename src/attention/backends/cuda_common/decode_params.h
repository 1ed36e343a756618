// SPDX-License-Identifier: Apache-2.0
// What a decode kernel of any CUDA backend is given: device pointers, strides, numbers.
#pragma once

#include <cstdint>

namespace latent::ops {
struct MlaAttentionParams;
}

namespace latent::attention::cuda {

// Device memory unless said otherwise; strides in elements; T is bf16 or fp16.
struct DecodeParams {
  const void* q_nope;          // [num_tokens, num_heads, kv_rank] T
  const void* q_pe;            // [num_tokens, num_heads, rope_dim] T; null where rope_dim is 0
  const void* cache;           // [num_pages, page_tokens, width] T, or codes (ops/kv_layout.h)
  const int32_t* q_starts;     // [num_seqs + 1]
  const int32_t* kv_lens;      // [num_seqs]
  const int32_t* block_table;  // [num_seqs, .]
  void* out;                   // [num_tokens, num_heads, kv_rank] T
  float* lse;                  // [num_tokens, num_heads], natural log; may be null
  int64_t q_nope_token_stride, q_nope_head_stride;
  int64_t q_pe_token_stride, q_pe_head_stride;
  int64_t cache_page_stride, cache_row_stride;
  int64_t table_stride;
  int64_t out_token_stride, out_head_stride;
  int64_t lse_token_stride, lse_head_stride;
  int num_tokens;
  int num_seqs;
  int num_heads;
  int page_tokens;
  float softmax_scale;
  float cache_scale;  // of e4m3 codes with one scale

  // Split-KV: pieces of requests that more than one CTA works on, in the kernel's own layouts.
  float* partial_out;  // [num_parts * 2, num_row_tiles, row_tile * kv_rank]
  float* partial_lse;  // [num_parts * 2, num_row_tiles, row_tile, state_floats]
  int32_t* arrived;    // [num_parts * 2, num_row_tiles]; zero before and after every launch
  int num_row_tiles;   // row tiles of the longest request
  int num_parts;       // CTAs that share the keys, for each row tile
};

// The operands of a step on device memory, without what splitting adds. CHECKs that rows start at multiples
// of 16 bytes; `backend` is named if not.
DecodeParams decode_params(const ops::MlaAttentionParams& params, const char* backend);

}  // namespace latent::attention::cuda
