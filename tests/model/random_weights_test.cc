// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "model/checkpoint_writer.h"
#include "model/loader.h"
#include "testing/compare.h"

namespace latent::model {
namespace {

LoadedModel make(uint64_t seed, DType dtype, int num_threads) {
  const ModelConfig config =
      parse_config(testing::tiny_config(R"({"vocab_size": 7000, "hidden_size": 150})")).value();
  return random_weights(config,
                        {.seed = seed, .dtype = dtype, .max_positions = 64, .num_threads = num_threads})
      .value();
}

TEST(RandomWeights, depend_on_the_seed_and_not_on_the_threads) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3}) {
    const LoadedModel one = make(5, dtype, 1), four = make(5, dtype, 4), other = make(6, dtype, 1);
    for (const auto& [name, entry] : one.weights.entries()) {
      EXPECT_TRUE(testing::same_bits(four.weights.view(name).values, entry.values.view())) << name;
      EXPECT_TRUE(testing::all_finite(entry.values.view())) << name;
      if (!entry.scales.view().empty()) {
        EXPECT_TRUE(testing::all_finite(entry.scales.view())) << name;
      }
    }
    EXPECT_FALSE(testing::same_bits(other.weights.view("layers.1.kv_b").values,
                                    one.weights.view("layers.1.kv_b").values));
  }
}

TEST(RandomWeights, have_the_types_of_published_checkpoints) {
  const LoadedModel model = make(5, DType::kF8E4M3, 1);
  EXPECT_EQ(model.activation, DType::kBF16);
  EXPECT_EQ(model.weights.view("layers.1.experts.up").values.dtype(), DType::kF8E4M3);
  EXPECT_EQ(model.weights.view("layers.1.experts.up").scales.shape(), Shape({8, 1, 2}));
  EXPECT_EQ(model.weights.view("layers.1.router").values.dtype(), DType::kBF16);
  EXPECT_EQ(model.weights.view("layers.1.router_bias").values.dtype(), DType::kF32);
  EXPECT_EQ(model.weights.view("embed").values.dtype(), DType::kBF16);
  EXPECT_EQ(make(5, DType::kF32, 1).activation, DType::kF32);
}

// Matrices keep the size of what they multiply: entries have variance 1 / cols.
TEST(RandomWeights, matrices_have_the_variance_of_their_width) {
  const LoadedModel model = make(5, DType::kF32, 1);
  const TensorView embed = model.weights.view("embed").values;
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < embed.num_elements(); ++i) {
    sum += embed.data<float>()[i];
    squares += double{embed.data<float>()[i]} * embed.data<float>()[i];
  }
  const auto n = static_cast<double>(embed.num_elements());  // a million: six standard errors are below 1 %
  EXPECT_NEAR(sum / n, 0, 0.001);
  EXPECT_NEAR(squares / n * 150, 1, 0.01);
}

TEST(RandomWeights, can_be_interrupted) {
  const ModelConfig config = parse_config(testing::tiny_config("{}")).value();
  int calls = 0;
  const Result<LoadedModel> model = random_weights(
      config, {.max_positions = 64, .progress = [&](int64_t, int64_t) { return ++calls < 3; }});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(calls, 3);
}

TEST(RandomWeights, more_than_the_memory_is_refused_before_it_is_taken) {
  const ModelConfig config =
      parse_config(testing::tiny_config(R"({"vocab_size": 67108864, "hidden_size": 1048576})")).value();
  const Result<LoadedModel> model = random_weights(config, {.max_positions = 64});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::kExhausted);
  EXPECT_NE(model.error().message.find("GiB of memory are free"), std::string::npos) << model.error().message;
}

}  // namespace
}  // namespace latent::model
