// SPDX-License-Identifier: Apache-2.0
#include "runtime/page_pool.h"

#include "base/check.h"
#include "ops/kv_layout.h"

namespace latent::runtime {

PagePool::PagePool(int num_pages) {
  CHECK(num_pages >= 1, "a pool of {} pages lacks the null page", num_pages);
  ref_counts_.assign(static_cast<size_t>(num_pages), 0);
  free_.reserve(ref_counts_.size());
  for (int32_t page = num_pages - 1; page > ops::kNullPage; --page) free_.push_back(page);
}

std::optional<int32_t> PagePool::allocate() {
  if (free_.empty()) return std::nullopt;
  const int32_t page = free_.back();
  free_.pop_back();
  ref_counts_[static_cast<size_t>(page)] = 1;
  return page;
}

void PagePool::share(int32_t page) {
  check_held(page);
  ++ref_counts_[static_cast<size_t>(page)];
}

bool PagePool::release(int32_t page) {
  check_held(page);
  if (--ref_counts_[static_cast<size_t>(page)] > 0) return false;
  free_.push_back(page);
  return true;
}

void PagePool::check_held(int32_t page) const {
  CHECK(page > ops::kNullPage && page < num_pages(), "page {} of a pool of {}", page, num_pages());
  CHECK(ref_count(page) > 0, "page {} is free", page);
}

void PagePool::check_integrity() const {
  std::vector<bool> is_free(ref_counts_.size(), false);
  for (const int32_t page : free_) {
    CHECK(page > ops::kNullPage && page < num_pages(), "page {} in the free list of {}", page, num_pages());
    CHECK(!is_free[static_cast<size_t>(page)], "page {} is free twice", page);
    is_free[static_cast<size_t>(page)] = true;
  }
  for (int32_t page = 0; page < num_pages(); ++page) {
    const bool held = ref_count(page) > 0;
    if (page == ops::kNullPage) {
      CHECK(!held, "the null page has a holder");
    } else {
      CHECK(held != is_free[static_cast<size_t>(page)], "page {} has {} holders and is {}free", page,
            ref_count(page), is_free[static_cast<size_t>(page)] ? "" : "not ");
    }
  }
}

}  // namespace latent::runtime
