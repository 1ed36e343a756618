// SPDX-License-Identifier: Apache-2.0
// The memory of the paged latent cache: one tensor a layer, reserved at start-up. Which page belongs to whom
// is the page pool's business (runtime/page_pool.h).
#pragma once

#include <vector>

#include "ops/kv_layout.h"
#include "tensor/tensor.h"

namespace latent::exec {

class KvCache {
 public:
  // `num_pages` counts the null page. Poisoned under a pattern.
  static Result<KvCache> create(const ops::KvLayout& layout, int num_layers, int num_pages,
                                PoisonPattern poison);

  const ops::KvLayout& layout() const { return layout_; }
  int num_pages() const { return num_pages_; }
  int num_layers() const { return static_cast<int>(layers_.size()); }
  // [num_pages, page_tokens, width]
  const TensorView& layer(int layer) const { return layers_[static_cast<size_t>(layer)].view(); }
  int64_t num_bytes() const;

  // A page that goes back to the pool forgets what it held (contract C3). Nothing happens without a pattern.
  void poison_page(int32_t page);

 private:
  ops::KvLayout layout_;
  int num_pages_ = 0;
  PoisonPattern poison_ = PoisonPattern::kNone;
  std::vector<Tensor> layers_;
};

}  // namespace latent::exec
