// SPDX-License-Identifier: Apache-2.0
#include "model/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/checkpoint_writer.h"

namespace latent::model {
namespace {

// mla_stack.md 1.3: for rope width 64, base 1e4 and 4,096 positions the ramp runs from 10 to 23.
TEST(RopeTable, yarn_keeps_high_frequencies_and_stretches_low_ones) {
  const ModelConfig v3 = named_shape("v3").value();
  const std::vector<double> f = rope_frequencies(v3, 4096);
  ASSERT_EQ(f.size(), 32u);
  for (size_t i = 0; i < f.size(); ++i) {
    const double plain = std::pow(1e4, -2.0 * static_cast<double>(i) / 64);
    const double m = 1 - std::clamp((static_cast<double>(i) - 10) / (23 - 10), 0.0, 1.0);
    EXPECT_NEAR(f[i], (1 - m) * plain / 40 + m * plain, 1e-15) << i;
  }
  EXPECT_EQ(f[10], std::pow(1e4, -20.0 / 64));
  EXPECT_DOUBLE_EQ(f[23], std::pow(1e4, -46.0 / 64) / 40);
}

TEST(RopeTable, equal_betas_make_a_step) {
  const ModelConfig kimi = named_shape("kimi-k2").value();
  const std::vector<double> f = rope_frequencies(kimi, 4096);
  // corr(1) = 64 ln(4096 / 2 pi) / (2 ln 5e4) = 19.16: whole below, stretched from 20 on.
  EXPECT_EQ(f[19], std::pow(5e4, -38.0 / 64));
  EXPECT_NEAR(f[20], std::pow(5e4, -40.0 / 64) / 32, 1e-18);
}

// contract: C10
TEST(RopeTable, mscale_ratio_multiplies_cos_and_sin) {
  RopeConfig rope{.type = RopeConfig::Type::kYarn, .factor = 40, .mscale = 1.0, .mscale_all_dim = 0.5};
  const double ratio = (0.1 * std::log(40) + 1) / (0.05 * std::log(40) + 1);
  EXPECT_DOUBLE_EQ(rope_attention_factor(rope), ratio);
  rope.mscale_all_dim = 0;  // without both, transformers takes the plain factor
  EXPECT_DOUBLE_EQ(rope_attention_factor(rope), 0.1 * std::log(40) + 1);
  rope.attention_factor = 1.25;
  EXPECT_EQ(rope_attention_factor(rope), 1.25);
}

TEST(RopeTable, holds_scaled_cosines_then_sines) {
  const ModelConfig config =
      parse_config(
          testing::tiny_config(
              R"({"qk_rope_head_dim": 8, "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 16}})"))
          .value();
  const Tensor table = make_rope_table(config, 100).value();
  EXPECT_EQ(table.shape(), Shape({100, 8}));
  const std::vector<double> f = rope_frequencies(config, 100);
  const double factor = rope_attention_factor(config.rope);
  EXPECT_GT(factor, 1);
  for (int p = 0; p < 100; ++p)
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_FLOAT_EQ(table.view().row<float>(p)[i], static_cast<float>(std::cos(p * f[i]) * factor));
      EXPECT_FLOAT_EQ(table.view().row<float>(p)[4 + i], static_cast<float>(std::sin(p * f[i]) * factor));
    }
}

TEST(RopeTable, longrope_factors_follow_the_limit_served) {
  const ModelConfig config =
      parse_config(
          testing::tiny_config(
              R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 2], "long_factor": [3, 4], "original_max_position_embeddings": 32}})"))
          .value();
  const double plain = std::pow(1e4, -0.5);
  EXPECT_EQ(rope_frequencies(config, 32), (std::vector<double>{1, plain * (1 / 2.0)}));
  EXPECT_EQ(rope_frequencies(config, 33), (std::vector<double>{1 / 3.0, plain * (1 / 4.0)}));
}

// Mistral 4: steps of the query's scale at multiples of the original limit, in both its tables.
TEST(RopeTable, queries_may_be_scaled_by_position) {
  const ModelConfig config =
      parse_config(
          testing::tiny_config(R"({"architectures": ["Mistral4ForCausalLM"], "rope_scaling": {"type": "yarn",
      "factor": 4, "original_max_position_embeddings": 16, "llama_4_scaling_beta": 0.5}})"))
          .value();
  EXPECT_EQ(query_scale(config.rope, 15), 1);
  EXPECT_DOUBLE_EQ(query_scale(config.rope, 16), 1 + 0.5 * std::log(2));
  EXPECT_DOUBLE_EQ(query_scale(config.rope, 47), 1 + 0.5 * std::log(3));
  graph::WeightStore weights;
  ASSERT_TRUE(add_rope_tables(config, 48, &weights).ok());
  const TensorView plain = weights.view(kRopeTableName).values,
                   scaled = weights.view(kQueryRopeTableName).values;
  const TensorView still = weights.view(kQueryScaleTableName).values;
  ASSERT_EQ(still.shape(), Shape({48, 6}));
  for (int p = 0; p < 48; ++p) {
    const auto s = static_cast<float>(query_scale(config.rope, p));
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(scaled.row<float>(p)[i], s * plain.row<float>(p)[i], 1e-6f);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(still.row<float>(p)[i], i < 3 ? s : 0.0f);
  }
}

}  // namespace
}  // namespace latent::model
