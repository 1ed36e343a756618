// SPDX-License-Identifier: Apache-2.0
// The reference by hand: numbers small enough to be written down. The conformance suite does the rest.
#include "attention/backends/ref/ref_prefill.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace latent {
namespace {

// One head, keys of one column, values of one: two rows after one cached token, and one padded row.
TEST(RefPrefill, weighs_the_keys_up_to_each_row) {
  std::vector<float> q = {1, 2, 9}, k = {0, 1, 2}, v = {10, 20, 40}, out(3, 7), lse(3, 7);
  std::vector<int32_t> q_starts = {0, 2}, kv_starts = {0, 3};
  float none = 0;
  const ops::PrefillAttentionParams p{
      .q_nope = {q.data(), DType::kF32, {3, 1, 1}},
      .q_pe = {&none, DType::kF32, {3, 1, 0}},
      .k_nope = {k.data(), DType::kF32, {3, 1, 1}},
      .k_pe = {&none, DType::kF32, {3, 1, 0}},
      .v = {v.data(), DType::kF32, {3, 1, 1}},
      .q_starts = {q_starts.data(), DType::kI32, {2}},
      .kv_starts = {kv_starts.data(), DType::kI32, {2}},
      .out = {out.data(), DType::kF32, {3, 1, 1}},
      .lse = {lse.data(), DType::kF32, {3, 1}},
      .attrs = {.num_heads = 1, .nope_dim = 1, .rope_dim = 0, .v_dim = 1, .softmax_scale = 0.5f}};
  ASSERT_TRUE(check(p).ok());
  attention::ref_prefill().run(p, nullptr, {});
  const double e = std::exp(0.5), e1 = std::exp(1.0), e2 = std::exp(2.0);
  EXPECT_FLOAT_EQ(out[0], static_cast<float>((10 + 20 * e) / (1 + e)));
  EXPECT_FLOAT_EQ(lse[0], static_cast<float>(std::log(1 + e)));
  EXPECT_FLOAT_EQ(out[1], static_cast<float>((10 + 20 * e1 + 40 * e2) / (1 + e1 + e2)));
  EXPECT_FLOAT_EQ(lse[1], static_cast<float>(std::log(1 + e1 + e2)));
  EXPECT_EQ(out[2], 0.0f);
  EXPECT_EQ(lse[2], -std::numeric_limits<float>::infinity());
}

TEST(RefPrefill, refuses_device_memory_and_types_it_cannot_write) {
  const ops::PrefillAttentionAttrs attrs{.num_heads = 2, .nope_dim = 4, .rope_dim = 2, .v_dim = 3};
  EXPECT_FALSE(attention::ref_prefill().supports({.attrs = attrs}));
  EXPECT_TRUE(attention::ref_prefill().supports({.attrs = attrs, .on_device = true}));
  EXPECT_TRUE(attention::ref_prefill().supports({.attrs = attrs, .out_dtype = DType::kF16}));
  EXPECT_TRUE(attention::ref_prefill().supports({.attrs = {.num_heads = 2}}));
}

}  // namespace
}  // namespace latent
