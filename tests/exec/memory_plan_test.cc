// SPDX-License-Identifier: Apache-2.0
#include "exec/memory_plan.h"

#include <gtest/gtest.h>

#include <random>

namespace latent::exec {
namespace {

bool overlap(int64_t a, int64_t a_bytes, int64_t b, int64_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

TEST(MemoryPlan, buffers_that_live_together_never_share_a_byte) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<LiveRange> ranges(1 + random() % 60);
    for (LiveRange& r : ranges) {
      r.first = static_cast<int>(random() % 40);
      r.last = r.first + static_cast<int>(random() % 10);
      r.bytes = static_cast<int64_t>(random() % 5000);
    }
    const MemoryPlan plan = plan_memory(ranges);
    for (size_t i = 0; i < ranges.size(); ++i) {
      EXPECT_EQ(plan.offsets[i] % 64, 0);
      EXPECT_LE(plan.offsets[i] + ranges[i].bytes, plan.total_bytes);
      for (size_t j = 0; j < i; ++j) {
        if (ranges[i].first > ranges[j].last || ranges[j].first > ranges[i].last) continue;
        EXPECT_FALSE(overlap(plan.offsets[i], ranges[i].bytes, plan.offsets[j], ranges[j].bytes))
            << "seed " << seed << " ranges " << i << " " << j;
      }
    }
  }
}

TEST(MemoryPlan, a_chain_needs_two_buffers) {
  std::vector<LiveRange> chain;
  for (int i = 0; i < 100; ++i) chain.push_back({i, i + 1, 4096});
  EXPECT_EQ(plan_memory(chain).total_bytes, 2 * 4096);
}

TEST(MemoryPlan, nothing_needs_nothing) {
  EXPECT_EQ(plan_memory({}).total_bytes, 0);
  EXPECT_EQ(plan_memory({{0, 3, 0}}).total_bytes, 0);
}

}  // namespace
}  // namespace latent::exec
