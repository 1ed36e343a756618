// SPDX-License-Identifier: Apache-2.0
#include "base/math.h"

#include <gtest/gtest.h>

namespace latent {
namespace {

TEST(Math, division_rounds_up) {
  EXPECT_EQ(ceil_div(0, 64), 0);
  EXPECT_EQ(ceil_div(64, 64), 1);
  EXPECT_EQ(ceil_div(65, 64), 2);
  EXPECT_EQ(round_up(65, 64), 128);
}

TEST(Math, powers_of_two_are_told_from_the_rest) {
  for (const int n : {1, 2, 1024}) EXPECT_TRUE(is_power_of_two(n));
  for (const int n : {0, -2, 3, 1023}) EXPECT_FALSE(is_power_of_two(n));
}

TEST(Math, overflow_is_told_and_leaves_the_result_alone) {
  int64_t result = 5;
  EXPECT_FALSE(checked_mul(INT64_MAX / 2, 3, &result));
  EXPECT_FALSE(checked_add(INT64_MAX, 1, &result));
  EXPECT_EQ(result, 5);
  EXPECT_TRUE(checked_mul(INT64_MAX / 2, 2, &result));
  EXPECT_EQ(result, INT64_MAX - 1);
  EXPECT_TRUE(checked_add(result, 1, &result));
  EXPECT_EQ(result, INT64_MAX);
}

}  // namespace
}  // namespace latent
