// SPDX-License-Identifier: Apache-2.0
// The cache write on a GPU, in one kernel: norm of the latent, rotation of the shared key, quantisation,
// scatter into pages by slot. All operands live in device memory; strides in elements.
//
// What is stored has the bits of the operators one by one (ops/elementwise.h, ops/rope.h, ops/kv_layout.h):
// the normalised latent and the rotated key are rounded to the activations' type first. Only the norm's sum
// has an order of its own.
#pragma once

#include "base/result.h"
#include "ops/kv_layout.h"

namespace latent::attention {

struct CacheWriteParams {
  TensorView kv_c;         // [num_tokens, kv_rank] bf16 or f16; rows may be strided
  TensorView norm_weight;  // [kv_rank] of kv_c's type or f32; empty: kv_c is normalised already
  TensorView k_pe;         // [num_tokens, rope_dim] of kv_c's type; rows may be strided. Empty: rope_dim 0
  TensorView positions;    // [num_tokens] i32; empty: k_pe is rotated already
  TensorView cos_sin;      // [max_positions, rope_dim] f32, as in ops/rope.h; a position outside gives NaN
  TensorView slots;        // [num_tokens] i32; slots outside of the cache, -1 among them, write nothing
  TensorView cache;        // [num_pages, page_tokens, width] of kv_c's type, f8_e4m3, or u8 (with bf16)
  float eps = 1e-6f;
  ops::RopeStyle style = ops::RopeStyle::kInterleaved;
  float scale = 1;  // of an f8_e4m3 cache
};

// Enqueues the write on the stream (a cudaStream_t). Refuses operands of other shapes, types or alignments
// with a sentence; rows of 16-bit elements start at multiples of 16 bytes, rows of codes at multiples of 8.
// Every byte of a written token's row is written, and no other. Allocates nothing; any thread.
Status write_cache(const CacheWriteParams& params, void* stream);

}  // namespace latent::attention
