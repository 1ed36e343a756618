// SPDX-License-Identifier: Apache-2.0
#include "attention/merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "testing/random.h"

namespace latent {
namespace {

constexpr float kEmpty = -std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kWidth = 5;

struct State {
  std::vector<float> out;
  float lse;
};

State state(float value, float lse) { return {std::vector<float>(kWidth, value), lse}; }

State merge(State a, State b) {
  const ops::MergeStatesParams p{.out_a = {a.out.data(), DType::kF32, {1, 1, kWidth}},
                                 .lse_a = {&a.lse, DType::kF32, {1, 1}},
                                 .out_b = {b.out.data(), DType::kF32, {1, 1, kWidth}},
                                 .lse_b = {&b.lse, DType::kF32, {1, 1}}};
  EXPECT_TRUE(check(p).ok());
  attention::merge_states(p, 1);
  return a;
}

// contract: C2 C9
TEST(MergeStates, empty_is_the_identity_whatever_its_output_holds) {
  for (const float lse : {-1e30f, -3.0f, 0.0f, 1e4f}) {
    for (const State& merged :
         {merge(state(2.5f, lse), state(kNan, kEmpty)), merge(state(kNan, kEmpty), state(2.5f, lse))}) {
      EXPECT_EQ(merged.lse, lse);
      for (const float x : merged.out) EXPECT_EQ(x, 2.5f);
    }
  }
  const State none = merge(state(kNan, kEmpty), state(kNan, kEmpty));
  EXPECT_EQ(none.lse, kEmpty);
  for (const float x : none.out) EXPECT_EQ(x, 0.0f);
}

// contract: C9
TEST(MergeStates, a_state_that_weighs_nothing_is_not_multiplied) {
  const State merged = merge(state(1.0f, 1e4f), state(kNan, -1e4f));
  EXPECT_EQ(merged.lse, 1e4f);
  for (const float x : merged.out) EXPECT_EQ(x, 1.0f);
}

// contract: C9
TEST(MergeStates, weighs_by_the_natural_exponential) {
  // Three keys against one key of the same logit 2.
  const State merged = merge(state(4.0f, 2.0f + std::log(3.0f)), state(8.0f, 2.0f));
  EXPECT_NEAR(merged.lse, 2.0 + std::log(4.0), 1e-6);
  for (const float x : merged.out) EXPECT_NEAR(x, 5.0, 1e-6);
}

TEST(MergeStates, any_order_of_any_number_of_states_agrees) {
  testing::Random random(testing::test_seed());
  for (int round = 0; round < 200; ++round) {
    const auto count = static_cast<size_t>(random.integer(0, 9));
    std::vector<State> states(count);
    double sum = 0, out = 0;
    for (State& s : states) {
      s = state(random.normal(), random.integer(0, 3) == 0 ? kEmpty : random.uniform(-20, 20));
      sum += std::exp(double{s.lse});
      out += std::exp(double{s.lse}) * s.out[0];
    }
    State forward = state(kNan, kEmpty), backward = state(kNan, kEmpty);
    for (size_t i = 0; i < count; ++i) {
      forward = merge(forward, states[i]);
      backward = merge(states[count - 1 - i], backward);
    }
    if (sum == 0) {
      EXPECT_EQ(forward.lse, kEmpty);
      EXPECT_EQ(backward.lse, kEmpty);
      continue;
    }
    // Each merge rounds a handful of times: eight roundings a merge bound it.
    const double bound = 8.0 * static_cast<double>(count) * 0x1p-24;
    for (const State& merged : {forward, backward}) {
      EXPECT_NEAR(merged.lse, std::log(sum), bound * 20) << random.seed();
      for (const float x : merged.out) EXPECT_NEAR(x, out / sum, bound * 4) << random.seed();
    }
  }
}

}  // namespace
}  // namespace latent
