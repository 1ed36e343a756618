// SPDX-License-Identifier: Apache-2.0
// PagePool: which pages of the latent cache are free and who holds the others. Page 0, the null page, is
// never handed out. Knows no memory: exec/kv_cache.h holds the bytes. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace latent::runtime {

class PagePool {
 public:
  // `num_pages` counts the null page; at least 1.
  explicit PagePool(int num_pages);

  int num_pages() const { return static_cast<int>(ref_counts_.size()); }
  int num_free() const { return static_cast<int>(free_.size()); }
  int num_held() const { return num_pages() - 1 - num_free(); }
  int ref_count(int32_t page) const { return ref_counts_[static_cast<size_t>(page)]; }

  // A page with one holder; nullopt when none is free.
  std::optional<int32_t> allocate();
  // One more holder of a held page.
  void share(int32_t page);
  // One holder less; true if that was the last and the page is free again.
  bool release(int32_t page);

  // CHECKs that every page but the null page is either free once or held.
  void check_integrity() const;

 private:
  void check_held(int32_t page) const;

  std::vector<int32_t> free_;  // last in, first out: a page that is still in a CPU cache is used again
  std::vector<int32_t> ref_counts_;
};

}  // namespace latent::runtime
