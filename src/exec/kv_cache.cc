// SPDX-License-Identifier: Apache-2.0
#include "exec/kv_cache.h"

#include "base/check.h"

namespace latent::exec {

Result<KvCache> KvCache::create(const ops::KvLayout& layout, int num_layers, int num_pages,
                                PoisonPattern poison) {
  KvCache cache;
  cache.layout_ = layout;
  cache.num_pages_ = num_pages;
  cache.poison_ = poison;
  for (int layer = 0; layer < num_layers; ++layer) {
    Result<Tensor> pages =
        Tensor::create(layout.dtype, {num_pages, layout.page_tokens, layout.width()}, poison);
    if (!pages)
      return pages.error().with_context(fmt::format("cache of layer {}, {} pages", layer, num_pages));
    cache.layers_.push_back(*std::move(pages));
  }
  return cache;
}

int64_t KvCache::num_bytes() const { return layout_.page_bytes() * num_pages_ * num_layers(); }

void KvCache::poison_page(int32_t page) {
  CHECK(page >= 0 && page < num_pages_, "page {} of {}", page, num_pages_);
  for (const Tensor& layer : layers_) {
    const TensorView view = layer.view().at(page);
    fill_poison(view.raw(), static_cast<size_t>(view.num_bytes()), element_kind(layout_.dtype), poison_);
  }
}

}  // namespace latent::exec
