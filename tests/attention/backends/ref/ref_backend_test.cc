// SPDX-License-Identifier: Apache-2.0
// The oracle itself, against numbers worked out by hand. The conformance suite does the rest.
#include "attention/backends/ref/ref_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace latent {
namespace {

// Two keys in a page of two tokens, page 1 of a pool of two. Latent width 2, no rope; scale 2.
class RefBackendByHand : public ::testing::Test {
 protected:
  void run(const ops::MlaAttentionAttrs& attrs, const ops::WeightView& kv_b, const std::vector<float>& q) {
    q_ = q;
    ops::MlaAttentionParams p;
    p.attrs = attrs;
    p.kv_b = kv_b;
    p.q_nope = {q_.data(), DType::kF32, {1, 1, static_cast<int64_t>(q_.size())}};
    p.q_pe = {q_.data(), DType::kF32, {1, 1, 0}};
    p.cache = {cache_, DType::kF32, {2, 2, 2}};
    p.batch = {.q_starts = {starts_, DType::kI32, {2}},
               .kv_lens = {lens_, DType::kI32, {1}},
               .block_table = {table_, DType::kI32, {1, 1}}};
    p.out = {out_, DType::kF32, {1, 1, p.attrs.form == ops::AttentionForm::kAbsorbed ? 2 : p.attrs.v_dim}};
    p.lse = {&lse_, DType::kF32, {1, 1}};
    ASSERT_TRUE(check(p).ok()) << check(p).error().message;
    std::vector<std::byte> workspace(1 << 12);
    attention::ref_backend().run(p, {}, {.num_threads = 1, .deterministic = false, .workspace = workspace});
  }

  std::vector<float> q_;
  float cache_[8] = {NAN, NAN, NAN, NAN, 1, 2, 3, -1};
  int32_t starts_[2] = {0, 1}, lens_[1] = {2}, table_[1] = {1};
  float out_[4] = {NAN, NAN, NAN, NAN}, lse_ = NAN;
};

TEST_F(RefBackendByHand, absorbed) {
  // Logits 2 * (0.5 * 1 + 0 * 2) = 1 and 2 * (0.5 * 3) = 3.
  run({.num_heads = 1, .kv_rank = 2, .page_tokens = 2, .softmax_scale = 2}, {}, {0.5f, 0});
  const double w = 1 / (1 + std::exp(-2.0));
  EXPECT_NEAR(out_[0], (1 - w) * 1 + w * 3, 1e-6);
  EXPECT_NEAR(out_[1], (1 - w) * 2 + w * -1, 1e-6);
  EXPECT_NEAR(lse_, 3 + std::log(1 + std::exp(-2.0)), 1e-6);
}

TEST_F(RefBackendByHand, multi_head_projects_the_latent_up) {
  // k_nope = 10 * latent[0] - latent[1] = 8, 31; v = latent[1] = 2, -1. Logits 2 * 0.01 * k.
  float kv_b[] = {10, -1, 0, 1};
  run({.form = ops::AttentionForm::kMultiHead,
       .num_heads = 1,
       .kv_rank = 2,
       .nope_dim = 1,
       .v_dim = 1,
       .page_tokens = 2,
       .softmax_scale = 2},
      {.values = {kv_b, DType::kF32, {2, 2}}, .scales = {}}, {0.01f});
  const double a = std::exp(0.16), b = std::exp(0.62);
  EXPECT_NEAR(out_[0], (2 * a - b) / (a + b), 1e-6);
  EXPECT_NEAR(lse_, std::log(a + b), 1e-6);
}

}  // namespace
}  // namespace latent
