// SPDX-License-Identifier: Apache-2.0
#include "cli/attention_bench/cache_bench.h"

#include <gtest/gtest.h>

namespace latent::cli {
namespace {

TEST(CacheBench, bytes_are_what_a_call_reads_and_writes) {
  // 3 requests of 5 tokens: latent and key in bf16, angles, slot and position in; a row of the cache out.
  EXPECT_EQ(bytes_of({.op = CacheOp::kWrite, .cache = DType::kU8, .batch = 3, .len = 5}),
            15 * (1152 + 256 + 8 + 656));
  EXPECT_EQ(bytes_of({.op = CacheOp::kGather, .cache = DType::kF8E4M3, .batch = 3, .len = 5}),
            15 * (576 + 1152));
}

}  // namespace
}  // namespace latent::cli
