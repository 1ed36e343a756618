// SPDX-License-Identifier: Apache-2.0
// The router against a brute-force one that sorts, in double, and against the failures that other engines
// shipped (masked groups, bias in bf16, ties, scale and renormalisation).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "base/parallel.h"
#include "kernels/registry.h"
#include "testing/compare.h"
#include "testing/poison.h"
#include "testing/random.h"

namespace latent {
namespace {

using kernels::Implementation;
using ops::GroupScore;
using ops::RouterAttrs;
using ops::RouterParams;
using ops::RouterScore;
using testing::Random;
using testing::test_seed;

struct Routed {
  Tensor weights, ids;
  std::vector<int32_t> row_ids(int64_t row) const {
    const int32_t* p = ids.view().row<int32_t>(row);
    return {p, p + ids.shape()[1]};
  }
  float weight(int64_t row, int64_t j) const { return weights.view().row<float>(row)[j]; }
};

Routed run(const Implementation<RouterParams>& impl, const RouterAttrs& attrs, const TensorView& logits,
           const TensorView& bias, PoisonPattern pattern = PoisonPattern::kNan, int num_threads = 1) {
  const Shape shape = {logits.dim(0), attrs.top_k};
  Routed out{*Tensor::create(DType::kF32, shape, pattern), *Tensor::create(DType::kI32, shape, pattern)};
  const RouterParams p{logits, bias, out.weights.view(), out.ids.view(), attrs};
  const Status status = check(p);
  EXPECT_TRUE(status.ok()) << status.error().message;
  HostBuffer workspace =
      *HostBuffer::create(impl.workspace_bytes(p, num_threads), ElementKind::kFloat32, pattern);
  impl.run(p, {.num_threads = num_threads, .workspace = {workspace.data(), workspace.size_bytes()}});
  return out;
}

template <class Fn>
void for_implementations(Fn fn) {
  for (const auto& impl : kernels::implementations<RouterParams>()) {
    if (impl.refuse != nullptr && impl.refuse({}, cpu_features()) != nullptr) continue;
    SCOPED_TRACE(impl.name);
    fn(impl);
  }
}

struct Choice {
  std::vector<int32_t> ids;
  std::vector<double> weights;
};

// By sorting, group by group and then expert by expert; scores in double, rounded to f32 as the contract
// says.
Choice brute_force(const RouterAttrs& a, const float* logits, const float* bias) {
  const auto count = static_cast<size_t>(a.num_experts), size = count / static_cast<size_t>(a.num_groups);
  std::vector<float> scores(count), choices(count);
  const double max = *std::max_element(logits, logits + count);
  double sum = 0;
  for (size_t e = 0; e < count; ++e) sum += std::exp(logits[e] - max);
  for (size_t e = 0; e < count; ++e) {
    const double x = logits[e];
    scores[e] = static_cast<float>(a.score == RouterScore::kSigmoid ? 1 / (1 + std::exp(-x))
                                                                    : std::exp(x - max) / sum);
    choices[e] = bias == nullptr ? scores[e] : scores[e] + bias[e];
  }
  std::vector<std::pair<float, int>> groups;  // (-score, id) sorts into the total order
  for (int g = 0; g < a.num_groups; ++g) {
    std::vector<float> members(choices.begin() + g * static_cast<long>(size),
                               choices.begin() + (g + 1) * static_cast<long>(size));
    std::sort(members.rbegin(), members.rend());
    const bool two = a.group_score == GroupScore::kTop2Sum && size > 1;
    groups.emplace_back(-(two ? members[0] + members[1] : members[0]), g);
  }
  std::sort(groups.begin(), groups.end());
  std::vector<std::pair<float, int>> experts;
  for (int i = 0; i < a.topk_group; ++i)
    for (size_t k = 0; k < size; ++k) {
      const int e = groups[static_cast<size_t>(i)].second * static_cast<int>(size) + static_cast<int>(k);
      experts.emplace_back(-choices[static_cast<size_t>(e)], e);
    }
  std::sort(experts.begin(), experts.end());
  Choice out;
  double total = 0;
  for (int j = 0; j < a.top_k; ++j) {
    out.ids.push_back(experts[static_cast<size_t>(j)].second);
    total += scores[static_cast<size_t>(out.ids.back())];
  }
  for (const int32_t e : out.ids)
    out.weights.push_back(scores[static_cast<size_t>(e)] / (a.norm_topk ? total + 1e-20 : 1.0) *
                          double{a.routed_scale});
  return out;
}

void expect_brute_force(const RouterAttrs& attrs, const Tensor& logits, const Tensor* bias, uint64_t seed) {
  for_implementations([&](const auto& impl) {
    const Routed got = run(impl, attrs, logits.view(), bias == nullptr ? TensorView() : bias->view());
    for (int64_t t = 0; t < logits.shape()[0]; ++t) {
      const Choice want =
          brute_force(attrs, logits.view().row<float>(t), bias == nullptr ? nullptr : bias->data<float>());
      EXPECT_EQ(got.row_ids(t), want.ids) << "row " << t << ", seed " << seed;
      for (int j = 0; j < attrs.top_k; ++j) {
        const double w = want.weights[static_cast<size_t>(j)];
        EXPECT_NEAR(got.weight(t, j), w, 2 * 0x1p-24 * std::abs(w)) << "row " << t << ", seed " << seed;
      }
    }
  });
}

struct Form {
  int num_experts, top_k, num_groups, topk_group;
};
constexpr Form kForms[] = {{1, 1, 1, 1},     {7, 3, 1, 1},      {64, 6, 1, 1},  {64, 6, 8, 3},
                           {256, 8, 8, 4},   {384, 8, 1, 1},    {160, 6, 8, 3}, {129, 5, 3, 2},
                           {6, 6, 6, 6},     {12, 4, 6, 4},     {8, 8, 2, 2},   {30, 1, 5, 1},
                           {1000, 16, 4, 3}, {384, 8, 128, 100}};

TEST(Router, equals_brute_force_for_every_form) {
  for (const Form& form : kForms) {
    for (const RouterScore score : {RouterScore::kSigmoid, RouterScore::kSoftmax}) {
      for (const GroupScore group : {GroupScore::kMax, GroupScore::kTop2Sum}) {
        for (const testing::Values values :
             {testing::Values::kNormal, testing::Values::kTies, testing::Values::kZeros}) {
          const uint64_t seed = test_seed(static_cast<uint64_t>(form.num_experts));
          Random random(seed);
          const Tensor logits = random.tensor(DType::kF32, {9, form.num_experts}, values, 2.0f);
          const Tensor bias = random.tensor(DType::kF32, {form.num_experts}, values);
          const RouterAttrs attrs{.score = score,
                                  .group_score = group,
                                  .num_experts = form.num_experts,
                                  .top_k = form.top_k,
                                  .num_groups = form.num_groups,
                                  .topk_group = form.topk_group,
                                  .norm_topk = group == GroupScore::kMax,
                                  .routed_scale = 2.5f};
          expect_brute_force(attrs, logits, nullptr, seed);
          expect_brute_force(attrs, logits, &bias, seed);
        }
      }
    }
  }
}

TEST(Router, negative_biases_never_let_a_masked_group_in) {  // E1
  const RouterAttrs attrs{.num_experts = 64, .top_k = 8, .num_groups = 8, .topk_group = 2, .norm_topk = true};
  const uint64_t seed = test_seed();
  Random random(seed);
  const Tensor logits = random.tensor(DType::kF32, {50, 64});
  const Tensor bias = random.tensor(DType::kF32, {64}, testing::Values::kUniform);
  for (int e = 0; e < 64; ++e) bias.data<float>()[e] -= 2;  // [-3, -1): every choice is below zero
  for_implementations([&](const auto& impl) {
    const Routed got = run(impl, attrs, logits.view(), bias.view());
    for (int64_t t = 0; t < 50; ++t) {
      std::set<int32_t> groups;
      for (const int32_t id : got.row_ids(t)) groups.insert(id / 8);
      EXPECT_LE(groups.size(), 2u) << "row " << t << ", seed " << seed;
    }
  });
  expect_brute_force(attrs, logits, &bias, seed);
}

TEST(Router, a_bias_near_seven_keeps_its_f32_order) {  // E3: in bf16 these 256 biases collapse to a few
  const RouterAttrs attrs{.num_experts = 256, .top_k = 8, .num_groups = 1, .topk_group = 1};
  const uint64_t seed = test_seed();
  Random random(seed);
  const Tensor logits = random.tensor(DType::kF32, {20, 256}, testing::Values::kZeros);
  const Tensor bias = *Tensor::create(DType::kF32, {256});
  for (int e = 0; e < 256; ++e) bias.data<float>()[e] = 7 + static_cast<float>((e * 37) % 256) / 1024;
  for_implementations([&](const auto& impl) {
    const std::vector<int32_t> ids = run(impl, attrs, logits.view(), bias.view()).row_ids(0);
    for (int j = 0; j < 8; ++j) EXPECT_EQ(ids[static_cast<size_t>(j)] * 37 % 256, 255 - j);
  });
  expect_brute_force(attrs, random.tensor(DType::kF32, {20, 256}), &bias, seed);
}

TEST(Router, logits_closer_than_a_bf16_step_are_told_apart) {  // E4
  const RouterAttrs attrs{.score = RouterScore::kSoftmax, .num_experts = 4, .top_k = 2};
  float logits[] = {1.0f, 1.001f, 0.5f, 1.0005f};
  for_implementations([&](const auto& impl) {
    const Routed got = run(impl, attrs, {logits, DType::kF32, {1, 4}}, {});
    EXPECT_EQ(got.row_ids(0), (std::vector<int32_t>{1, 3}));
  });
}

// contract: C10
TEST(Router, scale_and_renormalisation_are_two_switches) {  // E6, E7
  float logits[] = {2.0f, -1.0f, 0.25f, 1.0f};
  const double s0 = 1 / (1 + std::exp(-2.0)), s3 = 1 / (1 + std::exp(-1.0));
  for (const float scale : {1.0f, 2.5f, 16.0f}) {
    for (const bool norm : {false, true}) {
      const RouterAttrs attrs{.num_experts = 4, .top_k = 2, .norm_topk = norm, .routed_scale = scale};
      const double divisor = norm ? s0 + s3 : 1;
      for_implementations([&](const auto& impl) {
        const Routed got = run(impl, attrs, {logits, DType::kF32, {1, 4}}, {});
        EXPECT_EQ(got.row_ids(0), (std::vector<int32_t>{0, 3}));
        EXPECT_NEAR(got.weight(0, 0), scale * s0 / divisor, 1e-6 * scale);
        EXPECT_NEAR(got.weight(0, 1), scale * s3 / divisor, 1e-6 * scale);
      });
    }
  }
}

TEST(Router, weights_are_the_unbiased_scores) {
  float logits[] = {0.0f, 0.0f, 0.0f}, bias[] = {-5, 3, 2};
  const RouterAttrs attrs{.num_experts = 3, .top_k = 2};
  for_implementations([&](const auto& impl) {
    const Routed got = run(impl, attrs, {logits, DType::kF32, {1, 3}}, {bias, DType::kF32, {3}});
    EXPECT_EQ(got.row_ids(0), (std::vector<int32_t>{1, 2}));
    EXPECT_EQ(got.weight(0, 0), 0.5f);
    EXPECT_EQ(got.weight(0, 1), 0.5f);
  });
}

TEST(Router, equal_scores_go_to_the_smaller_id) {  // E12
  const RouterAttrs attrs{.num_experts = 64, .top_k = 6, .num_groups = 8, .topk_group = 3};
  const Tensor logits = Random(1).tensor(DType::kF32, {1, 64}, testing::Values::kZeros);
  for_implementations([&](const auto& impl) {
    EXPECT_EQ(run(impl, attrs, logits.view(), {}).row_ids(0), (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  });
}

TEST(Router, scores_that_all_underflow_are_renormalised_to_finite_weights) {
  const RouterAttrs attrs{.num_experts = 4, .top_k = 2, .norm_topk = true};
  float logits[] = {-1e30f, -1e30f, -INFINITY, -1e30f};
  for_implementations([&](const auto& impl) {
    const Routed got = run(impl, attrs, {logits, DType::kF32, {1, 4}}, {});
    EXPECT_TRUE(testing::all_finite(got.weights.view()));
    EXPECT_EQ(got.row_ids(0), (std::vector<int32_t>{0, 1}));
  });
}

// contract: C7
// E9: whatever the row holds, consumers can use every id as an index.
TEST(Router, a_nan_row_gets_distinct_valid_ids_and_nan_weights) {
  for (const RouterScore score : {RouterScore::kSigmoid, RouterScore::kSoftmax}) {
    const RouterAttrs attrs{
        .score = score, .num_experts = 32, .top_k = 5, .num_groups = 4, .topk_group = 2, .norm_topk = true};
    Random random(test_seed());
    const Tensor logits = random.tensor(DType::kF32, {3, 32});
    for_implementations([&](const auto& impl) {
      logits.view().row<float>(1)[17] = 0;
      const Routed good = run(impl, attrs, logits.view(), {});
      for (const float bad : {NAN, -NAN}) {
        logits.view().row<float>(1)[17] = bad;
        const Routed got = run(impl, attrs, logits.view(), {});
        const std::vector<int32_t> ids = got.row_ids(1);
        EXPECT_EQ(std::set<int32_t>(ids.begin(), ids.end()).size(), 5u);
        for (int j = 0; j < 5; ++j) {
          EXPECT_TRUE(ids[static_cast<size_t>(j)] >= 0 && ids[static_cast<size_t>(j)] < 32);
          EXPECT_TRUE(std::isnan(got.weight(1, j)));
        }
        for (const int64_t other : {0, 2}) {
          EXPECT_EQ(got.row_ids(other), good.row_ids(other));
          EXPECT_TRUE(testing::same_bits(got.weights.view().slice(0, other, other + 1),
                                         good.weights.view().slice(0, other, other + 1)));
        }
      }
    });
  }
}

TEST(Router, an_infinite_logit_gives_valid_ids) {
  for (const RouterScore score : {RouterScore::kSigmoid, RouterScore::kSoftmax}) {
    const RouterAttrs attrs{.score = score, .num_experts = 5, .top_k = 3};
    float logits[] = {0, INFINITY, -INFINITY, INFINITY, 1};
    for_implementations([&](const auto& impl) {
      const std::vector<int32_t> ids = run(impl, attrs, {logits, DType::kF32, {1, 5}}, {}).row_ids(0);
      EXPECT_EQ(std::set<int32_t>(ids.begin(), ids.end()).size(), 3u);
      for (const int32_t id : ids) EXPECT_TRUE(id >= 0 && id < 5);
    });
  }
}

// contract: C3 C4 C5
TEST(Router, no_bit_depends_on_poison_threads_or_the_batch) {
  const RouterAttrs attrs{.num_experts = 256,
                          .top_k = 8,
                          .num_groups = 8,
                          .topk_group = 4,
                          .norm_topk = true,
                          .routed_scale = 2.5f};
  Random random(test_seed());
  const Tensor logits = random.tensor(DType::kF32, {100, 256}), bias = random.tensor(DType::kF32, {256});
  for_implementations([&](const auto& impl) {
    const Routed want = run(impl, attrs, logits.view(), bias.view());
    const auto expect_same = [&](const Routed& got, const Range& rows) {
      EXPECT_TRUE(testing::same_bits(got.ids.view(), want.ids.view().slice(0, rows.begin, rows.end)));
      EXPECT_TRUE(testing::same_bits(got.weights.view(), want.weights.view().slice(0, rows.begin, rows.end)));
    };
    for (const PoisonPattern pattern : testing::kPoisonPatterns)
      expect_same(run(impl, attrs, logits.view(), bias.view(), pattern, 3), {0, 100});
    for (const int64_t t : {0, 41, 99})
      expect_same(run(impl, attrs, logits.view().slice(0, t, t + 1), bias.view()), {t, t + 1});
  });
}

}  // namespace
}  // namespace latent
