// SPDX-License-Identifier: Apache-2.0
// moe_experts: every implementation against an oracle in double written here, with an error bound beside each
// value.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/run_kernel.h"
#include "kernels/weight_values.h"
#include "tensor/float_types.h"
#include "testing/random.h"

namespace latent {
namespace {

using ops::MoeExpertsParams;
using testing::Random;
using testing::run_every_way;
using testing::run_poisoned;
using testing::same_bits;
using testing::serving;
using testing::serving_fast;
using testing::Values;
using testing::Weights;

struct Case {
  int64_t tokens, top_k, num_experts, hidden, inter;
  int first_expert = 0, num_local = 0;  // num_local 0: all
};

// Owns operands; params() points into it.
struct Problem {
  Case c;
  Tensor x, weights, ids, out;
  Weights gate, up, down;

  Problem(Random& random, const Case& shape, DType x_type, DType weight_type, Values values = Values::kNormal)
      : c(shape),
        x(random.tensor(x_type, {c.tokens, c.hidden}, values)),
        weights(random.tensor(DType::kF32, {c.tokens, c.top_k}, Values::kUniform)),
        ids(random.distinct_ids(c.tokens, c.top_k, c.num_experts)),
        out(*Tensor::create(x_type, {c.tokens, c.hidden})),
        gate(random, weight_type, {local(), c.inter, c.hidden}),
        up(random, weight_type, {local(), c.inter, c.hidden}),
        down(random, weight_type, {local(), c.hidden, c.inter}) {}

  int64_t local() const { return c.num_local == 0 ? c.num_experts : c.num_local; }
  MoeExpertsParams params() const { return slice(0, c.tokens, out.view()); }
  MoeExpertsParams slice(int64_t begin, int64_t end, const TensorView& to) const {
    return {.x = x.view().slice(0, begin, end),
            .weights = weights.view().slice(0, begin, end),
            .ids = ids.view().slice(0, begin, end),
            .gate = gate.view(),
            .up = up.view(),
            .down = down.view(),
            .out = to,
            .attrs = {.first_expert = c.first_expert}};
  }
};

// A sum of products with the error of a chain of f32 additions over it, and what the error of one factor
// adds.
struct Sum {
  double value = 0, magnitude = 0;
  void add(double a, double b) {
    value += a * b;
    magnitude += std::abs(a * b);
  }
};

// The same gamma as in linear_test.cc.
double gamma(int64_t cols) { return (2.0 * static_cast<double>((cols + 15) / 16) + 9) * 0x1p-24; }

struct Expected {
  Tensor value, bound;
};

// With dg, du the bounds of gate and up and |silu'| <= 1.1:
//   dh = 1.1 |u| dg + |silu(g)| du + 1.1 dg du + |h| (16 units of silu and product + one rounding to x's
//   type) dy = sum |d| dh + gamma sum |d| (|h| + dh) out: sum_j |w| (dy + 2 top_k units |y|), then the
//   rounding to out.
Expected oracle(const Problem& p) {
  const MoeExpertsParams params = p.params();
  Expected e{*Tensor::create(DType::kF32, {p.c.tokens, p.c.hidden}),
             *Tensor::create(DType::kF32, {p.c.tokens, p.c.hidden})};
  const testing::WeightValues gate(params.gate), up(params.up), down(params.down);
  const double unit = 0x1p-24, inner_unit = unit_roundoff(params.x.dtype());
  std::vector<double> h(static_cast<size_t>(p.c.inter)), dh(h.size());
  for (int64_t t = 0; t < p.c.tokens; ++t) {
    std::vector<double> sum(static_cast<size_t>(p.c.hidden), 0), error(sum.size(), 0);
    for (int64_t j = 0; j < p.c.top_k; ++j) {
      const int64_t expert = params.ids.row<int32_t>(t)[j] - p.c.first_expert;
      if (expert < 0 || expert >= p.local()) continue;
      for (int64_t i = 0; i < p.c.inter; ++i) {
        Sum g, u;
        for (int64_t k = 0; k < p.c.hidden; ++k) {
          g.add(gate.at(expert, i, k), testing::element(params.x, t, k));
          u.add(up.at(expert, i, k), testing::element(params.x, t, k));
        }
        const double dg = gamma(p.c.hidden) * g.magnitude, du = gamma(p.c.hidden) * u.magnitude;
        const double silu = g.value / (1 + std::exp(-g.value));
        const auto at = static_cast<size_t>(i);
        h[at] = silu * u.value;
        dh[at] = 1.1 * std::abs(u.value) * dg + std::abs(silu) * du + 1.1 * dg * du;
        dh[at] += (std::abs(h[at]) + dh[at]) * (16 * unit + inner_unit);
      }
      const double w = params.weights.row<float>(t)[j];
      for (int64_t n = 0; n < p.c.hidden; ++n) {
        double y = 0, dy = 0;
        for (int64_t i = 0; i < p.c.inter; ++i) {
          const double d = down.at(expert, n, i), hi = h[static_cast<size_t>(i)],
                       di = dh[static_cast<size_t>(i)];
          y += d * hi;
          dy += std::abs(d) * (di + gamma(p.c.inter) * (std::abs(hi) + di));
        }
        sum[static_cast<size_t>(n)] += w * y;
        error[static_cast<size_t>(n)] +=
            std::abs(w) * (dy + 2 * static_cast<double>(p.c.top_k) * unit * (std::abs(y) + dy));
      }
    }
    for (int64_t n = 0; n < p.c.hidden; ++n) {
      const double value = sum[static_cast<size_t>(n)], bound = error[static_cast<size_t>(n)];
      e.value.view().row<float>(t)[n] = static_cast<float>(value);
      e.bound.view().row<float>(t)[n] = static_cast<float>(
          1.001 * (bound + (std::abs(value) + bound) * (unit_roundoff(params.out.dtype()) + unit)) +
          0x1p-120);
    }
  }
  return e;
}

constexpr std::pair<DType, DType> kTypes[] = {{DType::kF32, DType::kF32},
                                              {DType::kBF16, DType::kBF16},
                                              {DType::kBF16, DType::kF8E4M3},
                                              {DType::kF32, DType::kBF16},
                                              {DType::kF32, DType::kF8E4M3}};

constexpr Case kCases[] = {
    {1, 2, 4, 48, 33},         {1, 8, 9, 130, 70},       {5, 3, 7, 65, 129}, {20, 4, 5, 100, 66},
    {40, 1, 3, 33, 17},        {9, 3, 12, 64, 40, 4, 5},  // another rank's experts on both sides
    {3, 2, 30, 40, 20, 28, 2},                            // most tokens have no expert here
    {515, 2, 3, 16, 5}};                                  // more than one block of tokens

// contract: C3
TEST(MoeExperts, every_implementation_is_within_the_bound) {
  uint64_t salt = 0;
  for (const auto& [x_type, weight_type] : kTypes) {
    for (const Case& c : kCases) {
      const uint64_t seed = testing::test_seed(++salt);
      Random random(seed);
      const Problem problem(random, c, x_type, weight_type);
      const MoeExpertsParams p = problem.params();
      ASSERT_TRUE(check(p).ok()) << check(p).error().message;
      const Expected e = oracle(problem);
      for (const auto& impl : serving(p)) {
        SCOPED_TRACE(::testing::Message() << impl.name << ", " << c.tokens << " tokens, x "
                                          << to_string(x_type) << ", weight " << to_string(weight_type));
        run_every_way(impl, p);
        EXPECT_TRUE(testing::is_within(p.out, e.value.view(), e.bound.view(), seed));
      }
    }
  }
}

TEST(MoeExperts, outliers_and_zeros_stay_within_the_bound) {
  for (const auto& [x_type, weight_type] : kTypes) {
    for (const Values values : {Values::kOutliers, Values::kZeros}) {
      const uint64_t seed = testing::test_seed(50);
      Random random(seed);
      const Problem problem(random, {12, 2, 4, 70, 35}, x_type, weight_type, values);
      const MoeExpertsParams p = problem.params();
      const Expected e = oracle(problem);
      for (const auto& impl : serving(p)) {
        run_poisoned(impl, p, PoisonPattern::kNan);
        EXPECT_TRUE(testing::is_within(p.out, e.value.view(), e.bound.view(), seed)) << impl.name;
      }
    }
  }
}

// contract: C4 C5
TEST(MoeExperts, a_token_alone_has_the_bits_it_has_in_any_batch) {
  for (const auto& [x_type, weight_type] : kTypes) {
    Random random(testing::test_seed(60));
    const Problem problem(random, {41, 3, 6, 100, 70}, x_type, weight_type);
    const MoeExpertsParams whole = problem.params();
    for (const auto& impl : serving(whole)) {
      run_poisoned(impl, whole, PoisonPattern::kNan);
      for (const int64_t count : {1, 2, 7, 20}) {
        const Tensor part = *Tensor::create(x_type, {count, 100});
        run_poisoned(impl, problem.slice(9, 9 + count, part.view()), PoisonPattern::kInf);
        EXPECT_TRUE(same_bits(part.view(), whole.out.slice(0, 9, 9 + count))) << impl.name << ", " << count;
      }
    }
  }
}

// contract: C5
TEST(MoeExperts, the_number_of_threads_does_not_change_a_bit) {
  for (const auto& [x_type, weight_type] : kTypes) {
    Random random(testing::test_seed(65));
    const Problem problem(random, {9, 3, 5, 300, 200}, x_type, weight_type);
    const MoeExpertsParams p = problem.params();
    for (const auto& impl : serving_fast(p)) {
      run_poisoned(impl, p, PoisonPattern::kNan, 1);
      const Tensor one = testing::copy_of(p.out);
      for (const int threads : {2, 3, 8}) {
        run_poisoned(impl, p, PoisonPattern::kInf, threads);
        EXPECT_TRUE(same_bits(p.out, one.view())) << impl.name << ", " << threads << " threads";
      }
    }
  }
}

// contract: C4
// A row of NaN, and NaN router weights, stay where they are.
TEST(MoeExperts, a_bad_row_leaves_the_others_alone) {
  for (const auto& [x_type, weight_type] : kTypes) {
    Random random(testing::test_seed(70));
    const Problem problem(random, {14, 2, 3, 50, 40}, x_type, weight_type);
    const MoeExpertsParams p = problem.params();
    const Tensor good_x = testing::copy_of(p.x), good_weights = testing::copy_of(p.weights);
    for (const auto& impl : serving(p)) {
      copy_elements(good_x.view(), p.x);
      copy_elements(good_weights.view(), p.weights);
      run_poisoned(impl, p, PoisonPattern::kNan);
      const Tensor want = testing::copy_of(p.out);
      testing::poison(p.x.slice(0, 4, 5), PoisonPattern::kNan);
      testing::poison(p.weights.slice(0, 6, 7), PoisonPattern::kNan);
      run_poisoned(impl, p, PoisonPattern::kNan);
      for (const auto& [begin, end] : {std::pair{0, 4}, {5, 6}, {7, 14}})
        EXPECT_TRUE(same_bits(p.out.slice(0, begin, end), want.view().slice(0, begin, end))) << impl.name;
      EXPECT_FALSE(testing::all_finite(p.out.slice(0, 4, 5))) << impl.name;
      EXPECT_FALSE(testing::all_finite(p.out.slice(0, 6, 7))) << impl.name;
    }
  }
}

// Two ranks that hold half of the experts each add up to the whole.
TEST(MoeExperts, ranks_add_up_to_the_whole) {
  Random random(testing::test_seed(80));
  const Problem problem(random, {10, 3, 8, 40, 30}, DType::kF32, DType::kF32);
  const Expected e = oracle(problem);
  MoeExpertsParams half[2] = {problem.params(), problem.params()};
  const Tensor out[2] = {*Tensor::create(DType::kF32, {10, 40}), *Tensor::create(DType::kF32, {10, 40})};
  for (int rank = 0; rank < 2; ++rank) {
    half[rank].attrs.first_expert = rank * 4;
    half[rank].out = out[rank].view();
    for (ops::WeightView* w : {&half[rank].gate, &half[rank].up, &half[rank].down})
      w->values = w->values.slice(0, rank * 4, rank * 4 + 4);
  }
  for (const auto& impl : serving(half[0])) {
    for (const MoeExpertsParams& p : half) run_poisoned(impl, p, PoisonPattern::kNan);
    for (int64_t i = 0; i < 400; ++i) out[0].data<float>()[i] += out[1].data<float>()[i];
    // The sum of two parts rounds once more than the bound of the whole counts.
    for (int64_t i = 0; i < 400; ++i)
      EXPECT_NEAR(out[0].data<float>()[i], e.value.data<float>()[i],
                  e.bound.data<float>()[i] + 0x1p-23 * std::abs(e.value.data<float>()[i]))
          << impl.name;
  }
}

}  // namespace
}  // namespace latent
