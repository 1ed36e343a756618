// SPDX-License-Identifier: Apache-2.0
#include "runtime/page_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "ops/kv_layout.h"

namespace latent::runtime {
namespace {

TEST(PagePool, hands_out_every_page_but_the_null_page_once) {
  PagePool pool(9);
  std::set<int32_t> pages;
  while (const std::optional<int32_t> page = pool.allocate()) {
    EXPECT_NE(*page, ops::kNullPage);
    EXPECT_TRUE(pages.insert(*page).second) << "page " << *page << " twice";
  }
  EXPECT_EQ(pages.size(), 8u);
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.num_held(), 8);
}

TEST(PagePool, a_pool_of_the_null_page_alone_has_nothing_to_give) {
  PagePool pool(1);
  EXPECT_EQ(pool.allocate(), std::nullopt);
  pool.check_integrity();
}

TEST(PagePool, a_shared_page_is_free_after_its_last_holder) {
  PagePool pool(4);
  const int32_t page = *pool.allocate();
  pool.share(page);
  EXPECT_FALSE(pool.release(page));
  EXPECT_EQ(pool.num_held(), 1);
  EXPECT_TRUE(pool.release(page));
  EXPECT_EQ(pool.num_held(), 0);
}

TEST(PagePool, misuse_is_caught) {
  PagePool pool(4);
  const int32_t page = *pool.allocate();
  EXPECT_TRUE(pool.release(page));
  EXPECT_DEATH(pool.release(page), "is free");
  EXPECT_DEATH(pool.share(page), "is free");
  EXPECT_DEATH(pool.release(ops::kNullPage), "page 0");
  EXPECT_DEATH(pool.release(4), "page 4 of a pool of 4");
  EXPECT_DEATH(PagePool(0), "null page");
}

TEST(PagePool, stays_whole_under_any_sequence_of_calls) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    PagePool pool(1 + static_cast<int>(rng() % 40));
    std::multimap<int32_t, int> holders;  // one entry a holder
    for (int step = 0; step < 2000; ++step) {
      const uint32_t action = rng() % 3;
      if (action == 0) {
        if (const std::optional<int32_t> page = pool.allocate()) {
          ASSERT_EQ(holders.count(*page), 0u);
          holders.emplace(*page, 0);
        } else {
          ASSERT_EQ(pool.num_free(), 0);
        }
      } else if (!holders.empty()) {
        auto it = holders.begin();
        std::advance(it, rng() % holders.size());
        const int32_t page = it->first;
        if (action == 1) {
          pool.share(page);
          holders.emplace(page, 0);
        } else {
          holders.erase(it);
          ASSERT_EQ(pool.release(page), holders.count(page) == 0);
        }
        ASSERT_EQ(pool.ref_count(page), static_cast<int>(holders.count(page)));
      }
      pool.check_integrity();
    }
  }
}

}  // namespace
}  // namespace latent::runtime
