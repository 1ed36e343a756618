// SPDX-License-Identifier: Apache-2.0
// What the cache kernels are given. Strides in elements, those of the cache in bytes.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace latent::attention::cuda {

struct CachePages {
  unsigned char* data;
  int64_t page_bytes, row_bytes;  // from one to the next
  int num_pages, page_tokens;
  int kv_rank, rope_dim;  // multiples of 8
  DType dtype;            // bf16, f16, f8_e4m3 or u8
  float scale;            // of f8_e4m3
};

struct CacheWriteArgs {
  const void* kv_c;
  const void* norm_weight;  // null: none
  const void* k_pe;
  const int32_t* positions;  // null: no rotation
  const float* cos_sin;
  const int32_t* slots;
  int64_t kv_c_stride, k_pe_stride, positions_stride, cos_sin_stride, slots_stride;
  CachePages cache;
  int num_tokens;
  int max_positions;
  float eps;
  bool weight_is_f32;
  bool rotates_halves;
};

struct CacheGatherArgs {
  CachePages cache;
  const int32_t* block_table;
  const int32_t* starts;  // null: 0
  const int32_t* out_starts;
  void* out;
  int64_t table_stride, starts_stride, out_starts_stride, out_stride;
  int num_seqs, max_pages, num_rows;
  DType out_dtype;
};

inline constexpr int kMaxCacheRank = 1024;
inline constexpr int kMaxCacheRope = 256;

// `dtype` is that of the activations.
void launch_cache_write(const CacheWriteArgs& args, DType dtype, void* stream);
void launch_cache_gather(const CacheGatherArgs& args, void* stream);

}  // namespace latent::attention::cuda
