// SPDX-License-Identifier: Apache-2.0
// The paged latent cache: the one place that knows its bytes.
//
// A token's row holds the normalised latent, then the rotated shared key:
//
//   [0, kv_rank)                      latent, serves as key and as value
//   [kv_rank, kv_rank + rope_dim)     rope key, shared by all heads
//
// The type of the cache's elements says how they are stored (KvFormat):
//
//   f32, f16, bf16   as they are
//   f8_e4m3          all of them as e4m3, times one scale for the whole cache, latent and rope key together
//                    (512 + 64: 576 bytes a token)
//   u8               rows of bytes: the latent as e4m3; a little-endian fp32 scale for each 128 columns of
//   it;
//                    the rope key as bf16, exact (512 + 4 x 4 + 64 x 2: 656 bytes a token)
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

enum class KvFormat { kWide, kFp8, kFp8Blocks };
inline constexpr int kKvScaleColumns = 128;

struct KvLayout {
  int kv_rank = 512;
  int rope_dim = 64;
  int page_tokens = kDefaultPageTokens;
  DType dtype = DType::kBF16;  // f32, f16, bf16, f8_e4m3 or u8

  KvFormat format() const {
    return dtype == DType::kU8       ? KvFormat::kFp8Blocks
           : dtype == DType::kF8E4M3 ? KvFormat::kFp8
                                     : KvFormat::kWide;
  }
  // Places in a row of kFp8Blocks, in bytes.
  int num_scales() const { return kv_rank / kKvScaleColumns; }
  int scales_at() const { return kv_rank; }
  int rope_at() const { return kv_rank + num_scales() * 4; }

  // Elements of dtype in a token's row.
  int width() const {
    return format() == KvFormat::kFp8Blocks ? rope_at() + rope_dim * 2 : kv_rank + rope_dim;
  }
  int64_t token_bytes() const { return int64_t{width()} * static_cast<int64_t>(dtype_bytes(dtype)); }
  int64_t page_bytes() const { return token_bytes() * page_tokens; }
};

// Half a sentence that says why there is no such row, or null.
const char* refuse_kv_row(const KvLayout& layout);

// Writes kv_c[t] | k_pe[t] to row slots[t] of the cache; slot -1 writes nothing. A quantised cache is given
// e4m3(value / scale): finite values saturate at 448 * scale, others become NaN, so that they are seen again
// (contract C16). A scale of kFp8Blocks is amax / 448 of its columns' finite values, at least the smallest
// normal float.
struct KvCacheWriteParams {
  TensorView kv_c;   // [num_tokens, kv_rank] f32 or bf16, already normalised; rows may be strided
  TensorView k_pe;   // [num_tokens, rope_dim], already rotated; rows may be strided
  TensorView slots;  // [num_tokens] i32
  TensorView cache;  // [num_pages, page_tokens, width]; pages may have any stride
  float scale = 1;   // of an f8_e4m3 cache, finite and positive; caches of other types do not look at it
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
