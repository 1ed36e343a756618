// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <gtest/gtest.h>

namespace latent {
namespace {

TEST(CheckDeathTest, a_broken_promise_names_sentence_place_and_condition) {
  const int rows = 3, cols = 4;
  EXPECT_DEATH(CHECK(rows == cols, "a square matrix, not {} x {}", rows, cols),
               "check_test.cc:[0-9]+: a square matrix, not 3 x 4 .CHECK rows == cols.");
}

TEST(Check, a_kept_promise_costs_no_formatting) {
  int formatted = 0;
  CHECK(true, "{}", ++formatted);
  EXPECT_EQ(formatted, 0);
}

}  // namespace
}  // namespace latent
