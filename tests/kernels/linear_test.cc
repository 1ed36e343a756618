// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/registry.h"
#include "testing/compare.h"
#include "testing/poison.h"
#include "testing/random.h"

namespace latent {
namespace {

using testing::Random;
using testing::Weights;

// By hand: [1 2; 3 4] times [5 6; 7 8; -1 0] transposed.
TEST(LinearReference, multiplies_by_the_transposed_weight) {
  float x[] = {1, 2, 3, 4}, w[] = {5, 6, 7, 8, -1, 0}, out[6];
  const ops::LinearParams p{.x = {x, DType::kF32, {2, 2}},
                            .weight = {.values = {w, DType::kF32, {3, 2}}, .scales = {}},
                            .out = {out, DType::kF32, {2, 3}}};
  ASSERT_TRUE(check(p).ok());
  kernels::implementations<ops::LinearParams>().back().run(p, {});
  const float want[] = {17, 23, -1, 39, 53, -3};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(out[i], want[i]) << i;
}

}  // namespace
}  // namespace latent
