// SPDX-License-Identifier: Apache-2.0
#include "cli/attention_bench/bench_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace latent::cli {
namespace {

TEST(BenchCase, varied_lengths_stay_in_their_range_and_are_the_same_each_time) {
  const BenchCase c{.batch = 2000, .len = 1000, .varied = true};
  const std::vector<int32_t> lens = kv_lens(c);
  EXPECT_EQ(lens, kv_lens(c));
  EXPECT_EQ(*std::min_element(lens.begin(), lens.end()), 16);
  EXPECT_EQ(*std::max_element(lens.begin(), lens.end()), 2000);
  // A normal of deviation 500 clipped on both sides at two deviations: mean 1000, within five of its own.
  const double mean = std::accumulate(lens.begin(), lens.end(), 0.0) / 2000;
  EXPECT_NEAR(mean, 1000, 5 * 500 / std::sqrt(2000.0));
}

TEST(BenchCase, work_is_every_cached_token_once_and_products_for_every_query) {
  // 2 requests of 100 tokens, 3 heads, 4 queries: 576 + 512 products a key, head and query.
  const BenchWork work = work_of({.heads = 3, .q_len = 4, .batch = 2, .len = 100});
  EXPECT_EQ(work.tokens, 200);
  EXPECT_EQ(work.bytes, 200 * 1152 + 24 * (1152 + 1024));
  EXPECT_EQ(work.flops, 2.0 * 200 * 12 * 1088);
  const BenchWork codes = work_of({.heads = 3, .q_len = 4, .batch = 2, .len = 100, .cache = DType::kU8});
  EXPECT_EQ(codes.bytes, 200 * 656 + 24 * (1152 + 1024));
}

}  // namespace
}  // namespace latent::cli
