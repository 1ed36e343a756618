// SPDX-License-Identifier: Apache-2.0
// Where a token goes in the paged cache.
#pragma once

#include "base/check.h"
#include "ops/kv_layout.h"

namespace latent::kernels {

// Element offset of the cache row that token `t` is written to; -1 for a token without a slot.
inline int64_t cache_offset(const ops::KvCacheWriteParams& p, int64_t t) {
  const int64_t slot = p.slots.data<int32_t>()[t * p.slots.stride(0)];
  if (slot == ops::kSkipSlot) return -1;
  const int64_t page_tokens = p.cache.dim(1), page = slot / page_tokens;
  CHECK(slot >= 0 && page != ops::kNullPage && page < p.cache.dim(0),
        "slot {} of token {} is not in pages 1 to {} of {} tokens", slot, t, p.cache.dim(0) - 1, page_tokens);
  return page * p.cache.stride(0) + slot % page_tokens * p.cache.stride(1);
}

}  // namespace latent::kernels
