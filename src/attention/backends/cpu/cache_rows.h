// SPDX-License-Identifier: Apache-2.0
// The cached tokens of one request, wherever its pages lie.
#pragma once

#include "attention/backends/cpu/lane_engine.h"
#include "attention/desc.h"
#include "base/check.h"
#include "ops/mla_attention.h"

namespace latent::attention::cpu {

class CacheRows {
 public:
  CacheRows(const ops::MlaAttentionParams& params, int64_t seq)
      : cache_(&params.cache),
        layout_(kv_layout(params.attrs, params.cache.dtype())),
        scale_(params.cache_scale),
        table_(params.batch.block_table.data<int32_t>() + seq * params.batch.block_table.stride(0)),
        table_stride_(params.batch.block_table.stride(1)),
        page_tokens_(static_cast<uint32_t>(params.attrs.page_tokens)) {}

  // Address of a token's row; its elements are cache.stride(2) apart.
  const std::byte* row(int64_t token) const {
    const auto at_token = static_cast<uint32_t>(token), column = at_token / page_tokens_;
    const int64_t page = table_[column * table_stride_];
    CHECK(page >= 0 && page < cache_->dim(0), "page {} of {} pages holds token {}", page, cache_->dim(0),
          token);
    const int64_t at = page * cache_->stride(0) + (at_token - column * page_tokens_) * cache_->stride(1);
    return static_cast<const std::byte*>(cache_->raw()) +
           at * static_cast<int64_t>(dtype_bytes(cache_->dtype()));
  }

  // Columns [first, first + count) of a token's row, as f32 or in the cache's own type; of rows of codes as
  // f32 only.
  void read(const LaneEngine& engine, int64_t token, int first, int count, DType dtype, void* to) const;

 private:
  const TensorView* cache_;
  ops::KvLayout layout_;
  float scale_;
  const int32_t* table_;
  int64_t table_stride_;
  uint32_t page_tokens_;
};

}  // namespace latent::attention::cpu
