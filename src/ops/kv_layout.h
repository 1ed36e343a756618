// SPDX-License-Identifier: Apache-2.0
// The paged latent cache: the one place that knows its bytes.
//
// A token's row holds the normalised latent, then the rotated shared key:
//
//   [0, kv_rank)                      latent, serves as key and as value
//   [kv_rank, kv_rank + rope_dim)     rope key, shared by all heads
//
// Rows of `page_tokens` tokens make a page; a layer's cache is [num_pages, page_tokens, width]. Token i of a
// request lives in page block_table[i / page_tokens], row i % page_tokens; slot = page * page_tokens + row.
// Page 0 is the null page: padded block-table entries point at it, nobody reads it, nobody owns it.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "ops/rope.h"
#include "tensor/tensor_view.h"

namespace latent::ops {

inline constexpr int32_t kNullPage = 0;
inline constexpr int32_t kSkipSlot = -1;  // a padded token: nothing is written
inline constexpr int kDefaultPageTokens = 64;

struct KvLayout {
  int kv_rank = 512;
  int rope_dim = 64;
  int page_tokens = kDefaultPageTokens;
  DType dtype = DType::kBF16;  // f32, f16 or bf16

  int width() const { return kv_rank + rope_dim; }
  int64_t token_bytes() const { return int64_t{width()} * static_cast<int64_t>(dtype_bytes(dtype)); }
  int64_t page_bytes() const { return token_bytes() * page_tokens; }
};

// Writes kv_c[t] | k_pe[t] to row slots[t] of the cache; slot -1 writes nothing.
struct KvCacheWriteParams {
  TensorView kv_c;   // [num_tokens, kv_rank] f32 or bf16, already normalised; rows may be strided
  TensorView k_pe;   // [num_tokens, rope_dim], already rotated; rows may be strided
  TensorView slots;  // [num_tokens] i32
  TensorView cache;  // [num_pages, page_tokens, width]; pages may have any stride
};
Status check(const KvCacheWriteParams& params);

// The same with the rotation of k_pe done on the way (pass fuse_rope_cache_write).
struct RopeKvCacheWriteParams {
  KvCacheWriteParams write;  // k_pe not yet rotated
  TensorView positions;      // [num_tokens] i32
  TensorView cos_sin;        // [max_positions, rope_dim] f32, as in rope.h
  RopeAttrs attrs;
};
Status check(const RopeKvCacheWriteParams& params);

}  // namespace latent::ops
