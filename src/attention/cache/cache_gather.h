// SPDX-License-Identifier: Apache-2.0
// Cached rows of some requests, dequantised, one after another: what a prefill over context reads. All
// operands live in device memory; strides in elements.
#pragma once

#include "base/result.h"
#include "ops/kv_layout.h"

namespace latent::attention {

// Row r of the output, out_starts[s] <= r < out_starts[s + 1], is token starts[s] + r - out_starts[s] of
// request s: latent, then rope key. Rows from out_starts[num_seqs] on become zeros. A row whose page lies
// outside of the table or of the cache becomes NaN, so that it is seen.
struct CacheGatherParams {
  TensorView cache;        // [num_pages, page_tokens, width] bf16, f16, f8_e4m3 or u8
  TensorView block_table;  // [num_seqs, max_pages] i32
  TensorView starts;       // [num_seqs] i32, first token of each request, anywhere in a page; empty: 0
  TensorView out_starts;   // [num_seqs + 1] i32, ascending from 0
  TensorView out;          // [num_rows, kv_rank + rope_dim] f32, bf16 or f16; rows may be strided
  int kv_rank = 0;
  int rope_dim = 0;
  float scale = 1;  // of an f8_e4m3 cache
};

// Enqueues the copy on the stream (a cudaStream_t). Codes are multiplied by their scale in f32 and rounded to
// the output's type. Refuses other shapes, types or alignments with a sentence; rows of 16-bit elements start
// at multiples of 16 bytes, rows of codes at multiples of 8. Allocates nothing; any thread.
Status gather_cache(const CacheGatherParams& params, void* stream);

}  // namespace latent::attention
