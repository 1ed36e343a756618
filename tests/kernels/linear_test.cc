// SPDX-License-Identifier: Apache-2.0
// linear and head_linear: every implementation against the reference, and every path against every other bit
// for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/math.h"
#include "kernels/run_kernel.h"
#include "tensor/convert.h"
#include "tensor/float_types.h"
#include "testing/random.h"

namespace latent {
namespace {

using ops::HeadLinearParams;
using ops::LinearParams;
using testing::PaddedTensor;
using testing::Random;
using testing::run_every_way;
using testing::run_poisoned;
using testing::same_bits;
using testing::serving;
using testing::serving_fast;
using testing::Values;
using testing::Weights;

struct Types {
  DType x, weight, out;
};
constexpr Types kTypes[] = {
    {DType::kF32, DType::kF32, DType::kF32},   {DType::kBF16, DType::kBF16, DType::kBF16},
    {DType::kBF16, DType::kBF16, DType::kF32}, {DType::kBF16, DType::kF8E4M3, DType::kBF16},
    {DType::kF32, DType::kBF16, DType::kF32},  {DType::kF32, DType::kF16, DType::kF32},
    {DType::kBF16, DType::kF16, DType::kBF16}, {DType::kF32, DType::kF8E4M3, DType::kBF16},
    {DType::kBF16, DType::kF32, DType::kF32},
};

// A float copy of any tensor or weight, absolute values if asked for.
Tensor floats(const TensorView& view, bool absolute) {
  Tensor copy = *Tensor::create(DType::kF32, view.shape());
  auto* dst = copy.data<float>();
  testing::for_each_element(view, [&](const testing::Index&, const void* element) {
    const float value = element_to_float(element, view.dtype(), 0);
    *dst++ = absolute ? std::abs(value) : value;
  });
  return copy;
}

const kernels::Implementation<LinearParams>& reference() {
  return kernels::implementations<LinearParams>().back();
}

struct Expected {
  Tensor value, bound;
};

// The reference in f32 and, element by element, what a correct kernel may be off: gamma * sum_k |x_k w_k| for
// a chain of additions in f32 (products of 16-bit numbers are exact, others are fused), then one rounding to
// out.
//   gamma / 2^-24: 2 additions a chunk of 32 columns or 1 of 16 (cols / 16), 1 a scale block of at least 16
//   columns with its product (cols / 16 + 1), 1 rounding of value * scale, 5 folds of lanes, 1 rounding of
//   the reference.
// Below 2^-126 results are flushed: once an addition at most.
Expected expect(const LinearParams& p) {
  const Tensor ax = floats(p.x, true), aw = floats(p.weight.values, true);
  LinearParams magnitude{.x = ax.view(), .weight = p.weight, .out = {}};
  magnitude.weight.values = aw.view();
  Expected e{*Tensor::create(DType::kF32, p.out.shape()), *Tensor::create(DType::kF32, p.out.shape())};
  LinearParams exact = p;
  exact.out = e.value.view();
  reference().run(exact, {});
  magnitude.out = e.bound.view();
  reference().run(magnitude, {});
  const double cols = static_cast<double>(p.weight.cols());
  const double gamma = (2 * std::ceil(cols / 16) + 9) * 0x1p-24;
  for (int64_t i = 0; i < e.value.view().num_elements(); ++i) {
    const double sum = gamma * double{e.bound.data<float>()[i]};
    const double rounding = unit_roundoff(p.out.dtype()) * (std::abs(e.value.data<float>()[i]) + sum);
    e.bound.data<float>()[i] = static_cast<float>(1.0001 * (sum + rounding) + cols * 0x1p-126);
  }
  return e;
}

struct Case {
  int64_t tokens, rows, cols;
};

void check_case(const Case& c, const Types& types, Values values, uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << c.tokens << " x " << c.rows << " x " << c.cols << ", x "
                                    << to_string(types.x) << ", weight " << to_string(types.weight));
  Random random(seed);
  const Weights weight(random, types.weight, {c.rows, c.cols}, values);
  const PaddedTensor x = testing::padded(types.x, {c.tokens, c.cols}, 5);
  random.fill(x.view, values);
  const PaddedTensor out = testing::padded(types.out, {c.tokens, c.rows}, 3);
  const LinearParams p{.x = x.view, .weight = weight.view(), .out = out.view};
  ASSERT_TRUE(check(p).ok()) << check(p).error().message;
  const Expected e = expect(p);
  const Tensor before = testing::copy_of(out.storage.view());
  for (const auto& impl : serving_fast(p)) {
    SCOPED_TRACE(impl.name);
    run_every_way(impl, p);
    EXPECT_TRUE(testing::is_within(p.out, e.value.view(), e.bound.view(), seed));
    EXPECT_TRUE(same_bits(out.storage.view().slice(1, c.rows, c.rows + 3),
                          before.view().slice(1, c.rows, c.rows + 3)))
        << "wrote between the rows";
  }
}

constexpr Case kCases[] = {{1, 1, 1},     {1, 127, 129}, {2, 7, 576},   {3, 129, 127}, {4, 64, 64},
                           {5, 5, 100},   {7, 130, 32},  {8, 66, 1000}, {9, 65, 200},  {13, 31, 129},
                           {129, 67, 96}, {70, 3, 2500}, {36, 70, 4200}};

// contract: C3
TEST(Linear, every_implementation_is_within_the_bound_of_the_reference) {
  uint64_t salt = 0;
  for (const Types& types : kTypes)
    for (const Case& c : kCases) check_case(c, types, Values::kNormal, testing::test_seed(++salt));
}

TEST(Linear, outliers_and_zeros_stay_within_the_bound) {
  uint64_t salt = 100;
  for (const Types& types : kTypes)
    for (const Values values : {Values::kOutliers, Values::kZeros, Values::kTies})
      for (const Case& c : {Case{1, 33, 257}, Case{6, 9, 129}, Case{21, 20, 300}})
        check_case(c, types, values, testing::test_seed(++salt));
}

TEST(Linear, more_tokens_than_a_block_are_all_served) {
  check_case({1030, 5, 40}, {DType::kBF16, DType::kBF16, DType::kF32}, Values::kNormal,
             testing::test_seed(200));
  check_case({515, 6, 33}, {DType::kF32, DType::kF32, DType::kF32}, Values::kNormal, testing::test_seed(201));
}

TEST(Linear, an_empty_batch_touches_nothing) {
  Random random(testing::test_seed());
  const Weights weight(random, DType::kBF16, {4, 32});
  const Tensor x = *Tensor::create(DType::kBF16, {0, 32}), out = *Tensor::create(DType::kBF16, {0, 4});
  const LinearParams p{.x = x.view(), .weight = weight.view(), .out = out.view()};
  for (const auto& impl : serving(p)) run_poisoned(impl, p, PoisonPattern::kNan);
}

// Contract C5: the bits of a token do not depend on how many others come with it, whichever path that takes:
// one token, few that stay in a cache, many that pass large panels in blocks of columns.
void check_solo_equals_batched(const Types& types, int64_t tokens, int64_t rows, int64_t cols) {
  Random random(testing::test_seed());
  const Weights weight(random, types.weight, {rows, cols});
  const Tensor x = random.tensor(types.x, {tokens, cols}), all = *Tensor::create(types.out, {tokens, rows});
  const LinearParams whole{.x = x.view(), .weight = weight.view(), .out = all.view()};
  for (const auto& impl : serving_fast(whole)) {
    run_poisoned(impl, whole, PoisonPattern::kNan);
    for (const int64_t count : {1, 2, 3, 4, 5, 8, 9, 12}) {
      const Tensor part = *Tensor::create(types.out, {count, rows});
      const LinearParams few{
          .x = x.view().slice(0, 11, 11 + count), .weight = weight.view(), .out = part.view()};
      run_poisoned(impl, few, PoisonPattern::kLarge);
      EXPECT_TRUE(same_bits(part.view(), all.view().slice(0, 11, 11 + count)))
          << impl.name << ", " << count << " tokens, weight " << to_string(types.weight);
    }
  }
}

// contract: C4 C5
TEST(Linear, a_token_alone_has_the_bits_it_has_in_any_batch) {
  for (const Types& types : kTypes) {
    check_solo_equals_batched(types, 37, 67, 300);
    check_solo_equals_batched(types, 37, 9, 4100);
  }
}

// contract: C5
TEST(Linear, the_number_of_threads_does_not_change_a_bit) {
  for (const Types& types : {kTypes[0], kTypes[1], kTypes[3]}) {
    for (const int64_t tokens : {1, 17}) {
      Random random(testing::test_seed());
      const Weights weight(random, types.weight, {701, 1100});
      const Tensor x = random.tensor(types.x, {tokens, 1100}),
                   out = *Tensor::create(types.out, {tokens, 701});
      const LinearParams p{.x = x.view(), .weight = weight.view(), .out = out.view()};
      for (const auto& impl : serving(p)) {
        run_poisoned(impl, p, PoisonPattern::kNan, 1);
        const Tensor one = testing::copy_of(out.view());
        for (const int threads : {2, 3, 8}) {
          run_poisoned(impl, p, PoisonPattern::kNan, threads);
          EXPECT_TRUE(same_bits(out.view(), one.view())) << impl.name << ", " << threads << " threads";
        }
      }
    }
  }
}

// The f32 kernels share one order of sums, so AVX2 and AVX-512 agree bit for bit.
TEST(Linear, avx2_and_avx512_have_the_same_bits) {
  Random random(testing::test_seed());
  const Weights weight(random, DType::kF32, {50, 300});
  const Tensor x = random.tensor(DType::kF32, {11, 300});
  const Tensor first = *Tensor::create(DType::kF32, {11, 50}), other = *Tensor::create(DType::kF32, {11, 50});
  LinearParams p{.x = x.view(), .weight = weight.view(), .out = first.view()};
  auto impls = serving(p);
  impls.pop_back();
  if (impls.size() < 2) GTEST_SKIP() << "this machine has fewer than two of them";
  run_poisoned(impls[0], p, PoisonPattern::kNan);
  p.out = other.view();
  for (const auto& impl : impls) {
    run_poisoned(impl, p, PoisonPattern::kNan);
    EXPECT_TRUE(same_bits(first.view(), other.view())) << impl.name;
  }
}

// contract: C4
TEST(Linear, a_bad_row_leaves_the_others_alone) {
  for (const Types& types : {kTypes[0], kTypes[1], kTypes[3], kTypes[4]}) {
    for (const int64_t tokens : {3, 10}) {
      Random random(testing::test_seed(static_cast<uint64_t>(tokens)));
      const Weights weight(random, types.weight, {9, 140});
      const Tensor x = random.tensor(types.x, {tokens, 140}), out = *Tensor::create(types.out, {tokens, 9});
      const LinearParams p{.x = x.view(), .weight = weight.view(), .out = out.view()};
      const Tensor good = testing::copy_of(x.view());
      for (const auto& impl : serving(p)) {
        copy_elements(good.view(), x.view());
        run_poisoned(impl, p, PoisonPattern::kNan);
        const Tensor want = testing::copy_of(out.view());
        for (const PoisonPattern pattern : testing::kPoisonPatterns) {
          testing::poison(x.view().slice(0, 1, 2), pattern);
          run_poisoned(impl, p, PoisonPattern::kNan);
          EXPECT_TRUE(same_bits(out.view().slice(0, 0, 1), want.view().slice(0, 0, 1))) << impl.name;
          EXPECT_TRUE(same_bits(out.view().slice(0, 2, tokens), want.view().slice(0, 2, tokens)))
              << impl.name;
        }
      }
    }
  }
}

// A row of each: identity activations pick single weights, so every finite code comes back as its exact
// value.
TEST(Linear, every_finite_e4m3_code_is_exact) {
  std::vector<uint8_t> codes;
  for (int b = 0; b < 256; ++b)
    if ((b & 0x7F) != 0x7F) codes.push_back(static_cast<uint8_t>(b));
  const auto count = static_cast<int64_t>(codes.size());
  float scale = 1;
  for (const DType x_type : {DType::kF32, DType::kBF16}) {
    for (const int64_t tokens : {1, 9}) {
      const Tensor out = *Tensor::create(DType::kF32, {tokens, count});
      for (const int block : {128, 100}) {
        Tensor ones = *Tensor::create(x_type, {tokens, 1});
        const float one = 1;
        for (int64_t t = 0; t < tokens; ++t)
          convert_elements(
              &one, DType::kF32,
              static_cast<std::byte*>(ones.view().raw()) + t * static_cast<int64_t>(dtype_bytes(x_type)),
              x_type, 1);
        std::vector<float> scales(static_cast<size_t>(ceil_div<int64_t>(count, block)), scale);
        const LinearParams p{
            .x = ones.view(),
            .weight = {.values = {codes.data(), DType::kF8E4M3, {count, 1}},
                       .scales = {scales.data(), DType::kF32, {static_cast<int64_t>(scales.size()), 1}},
                       .block_rows = block,
                       .block_cols = block},
            .out = out.view()};
        ASSERT_TRUE(check(p).ok());
        for (const auto& impl : serving(p)) {
          run_poisoned(impl, p, PoisonPattern::kNan);
          for (int64_t t = 0; t < tokens; ++t)
            for (int64_t i = 0; i < count; ++i)
              EXPECT_EQ(out.data<float>()[t * count + i],
                        Float8E4M3{codes[static_cast<size_t>(i)]}.to_float())
                  << impl.name << ", code " << int{codes[static_cast<size_t>(i)]};
        }
      }
    }
  }
}

// Blocks clipped at both edges, blocks that no vector width divides, and the shapes of real checkpoints.
TEST(Linear, f8_blocks_of_any_size_are_served) {
  struct Blocks {
    Case c;
    int rows, cols;
  };
  uint64_t salt = 300;
  for (const Blocks& b :
       {Blocks{{2, 576, 7168}, 128, 128}, Blocks{{1, 1000, 1000}, 128, 128}, Blocks{{9, 129, 127}, 128, 128},
        Blocks{{1, 1, 1}, 128, 128}, Blocks{{9, 40, 200}, 64, 64}, Blocks{{2, 40, 200}, 7, 13},
        Blocks{{10, 40, 200}, 16, 48}, Blocks{{3, 9, 520}, 1, 256}}) {
    for (const DType x_type : {DType::kBF16, DType::kF32}) {
      const uint64_t seed = testing::test_seed(++salt);
      Random random(seed);
      const Weights weight(random, DType::kF8E4M3, {b.c.rows, b.c.cols}, Values::kNormal, b.rows, b.cols);
      const Tensor x = random.tensor(x_type, {b.c.tokens, b.c.cols});
      const Tensor out = *Tensor::create(DType::kF32, {b.c.tokens, b.c.rows});
      const LinearParams p{.x = x.view(), .weight = weight.view(), .out = out.view()};

      const Expected e = expect(p);
      for (const auto& impl : serving_fast(p)) {
        run_poisoned(impl, p, PoisonPattern::kNan);
        EXPECT_TRUE(testing::is_within(p.out, e.value.view(), e.bound.view(), seed)) << impl.name;
      }
    }
  }
}

// By hand: [1 2; 3 4] times [5 6; 7 8; -1 0] transposed.
TEST(Linear, multiplies_by_the_transposed_weight) {
  float x[] = {1, 2, 3, 4}, w[] = {5, 6, 7, 8, -1, 0}, out[6];
  const LinearParams p{.x = {x, DType::kF32, {2, 2}},
                       .weight = {.values = {w, DType::kF32, {3, 2}}, .scales = {}},
                       .out = {out, DType::kF32, {2, 3}}};
  const float want[] = {17, 23, -1, 39, 53, -3};
  for (const auto& impl : serving(p)) {
    run_poisoned(impl, p, PoisonPattern::kNan);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(out[i], want[i]) << impl.name << " " << i;
  }
}

TEST(Linear, columns_that_are_not_contiguous_go_to_the_reference) {
  Random random(testing::test_seed());
  const Weights weight(random, DType::kF32, {6, 20});
  const Tensor x = random.tensor(DType::kF32, {20, 5}), out = *Tensor::create(DType::kF32, {5, 6});
  const LinearParams p{.x = x.view().transpose(0, 1), .weight = weight.view(), .out = out.view()};
  ASSERT_EQ(serving(p).size(), 1u);
  const Expected e = expect(p);
  run_every_way(serving(p)[0], p);
  EXPECT_TRUE(testing::is_within(p.out, e.value.view(), e.bound.view(), random.seed()));
}

// Every head is the linear layer of its slice; tokens and heads lie apart.
TEST(HeadLinear, is_a_linear_layer_for_each_head_bit_for_bit) {
  uint64_t salt = 400;
  for (const Types& types : kTypes) {
    for (const Case& c :
         {Case{1, 512, 128}, Case{3, 128, 512}, Case{9, 7, 129}, Case{20, 65, 40}, Case{514, 3, 16}}) {
      constexpr int64_t kHeads = 5;
      Random random(testing::test_seed(++salt));
      const Weights weight(random, types.weight, {kHeads, c.rows, c.cols});
      const PaddedTensor x = testing::padded(types.x, {c.tokens, kHeads, c.cols}, 6);
      random.fill(x.view);
      const PaddedTensor out = testing::padded(types.out, {c.tokens, kHeads, c.rows}, 2);
      const HeadLinearParams p{.x = x.view, .weight = weight.view(), .out = out.view};
      ASSERT_TRUE(check(p).ok());
      for (const auto& impl : serving_fast(p)) {
        run_every_way(impl, p);
        for (int64_t h = 0; h < kHeads; ++h) {
          const Tensor one = *Tensor::create(types.out, {c.tokens, c.rows});
          const LinearParams lp{
              .x = x.view.transpose(0, 1).at(h), .weight = weight.view().at(h), .out = one.view()};
          for (const auto& linear : kernels::implementations<LinearParams>()) {
            if (std::string(linear.name) != impl.name) continue;
            run_poisoned(linear, lp, PoisonPattern::kNan);
            EXPECT_TRUE(same_bits(out.view.transpose(0, 1).at(h), one.view())) << impl.name << ", head " << h;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace latent
