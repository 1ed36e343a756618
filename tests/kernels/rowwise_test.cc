// SPDX-License-Identifier: Apache-2.0
// One suite for all row-wise operators: every implementation is held to the reference in f32, and every other
// dtype, stride, place in memory, neighbour and thread count to its own f32 run, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#include "kernels/registry.h"
#include "tensor/convert.h"
#include "testing/compare.h"
#include "testing/poison.h"
#include "testing/random.h"

namespace latent {
namespace {

using kernels::Implementation;
using testing::PaddedTensor;
using testing::Random;
using testing::test_seed;
using testing::Values;

constexpr double kUnit = 0x1p-24;  // unit roundoff of f32
using Views = std::vector<TensorView>;

// An operator with its implementations behind plain functions. The reference is the last implementation.
struct Op {
  const char* name;
  size_t num_inputs;
  size_t num_implementations;
  std::function<bool(size_t)> runs_here;
  std::function<void(size_t, const Views&, const TensorView&, int)> run;
  // Largest error of an f32 kernel for inputs x, y and exact result out.
  std::function<double(double, double, double)> bound;
};

template <class Params, class Make>
Op make_op(const char* name, size_t num_inputs, Make make,
           std::function<double(double, double, double)> bound) {
  const auto all = kernels::implementations<Params>();
  return {.name = name,
          .num_inputs = num_inputs,
          .num_implementations = all.size(),
          .runs_here =
              [all](size_t i) {
                return all[i].refuse == nullptr || all[i].refuse(Params{}, cpu_features()) == nullptr;
              },
          .run =
              [all, make](size_t i, const Views& in, const TensorView& out, int num_threads) {
                const Params params = make(in, out);
                ASSERT_TRUE(check(params).ok());
                all[i].run(params, {.num_threads = num_threads});
              },
          .bound = std::move(bound)};
}

// The norm's weight depends on the width alone, so that a row means the same in every batch.
TensorView norm_weight(int64_t width) {
  static std::map<int64_t, Tensor> weights;
  auto [place, is_new] = weights.try_emplace(width);
  if (is_new) place->second = Random(static_cast<uint64_t>(width)).tensor(DType::kF32, {width});
  return place->second.view();
}

// exp_of_negative is within 2 ulp (4 units); sigmoid adds the sum (1 + 4 e / (1 + e) < 3) and the quotient,
// silu one product; the reference rounds once. Below e^-87 the sigmoid stays put.
double silu_bound(double x, double y, double out) {
  return 10 * kUnit * std::abs(out) + 0x1p-125 * std::abs(x * y);
}

std::vector<Op> all_ops() {
  using namespace ops;
  return {
      // A chunk of 512 squares is summed in at least 8 lanes (64 + 3 sums, one product); the root halves it.
      make_op<RmsNormParams>(
          "rms_norm", 1,
          [](const Views& in, const TensorView& out) {
            return RmsNormParams{in[0], norm_weight(out.dim(1)), out, {.eps = 1e-5f}};
          },
          [](double, double, double out) { return (68.0 / 2 + 4) * kUnit * std::abs(out); }),
      make_op<AddParams>(
          "add", 2,
          [](const Views& in, const TensorView& out) {
            return AddParams{in[0], in[1], out, {0.3f}};
          },
          [](double, double y, double out) { return kUnit * (std::abs(0.3 * y) + 2 * std::abs(out)); }),
      make_op<ScaleParams>(
          "scale", 1,
          [](const Views& in, const TensorView& out) {
            return ScaleParams{in[0], out, {1.7f}};
          },
          [](double, double, double) { return 0.0; }),
      make_op<SiluParams>(
          "silu", 1,
          [](const Views& in, const TensorView& out) {
            return SiluParams{in[0], out};
          },
          [](double x, double, double out) { return silu_bound(x, 1, out); }),
      make_op<MulParams>(
          "mul", 2,
          [](const Views& in, const TensorView& out) {
            return MulParams{in[0], in[1], out};
          },
          [](double, double, double) { return 0.0; }),
      make_op<SiluMulParams>(
          "silu_mul", 2,
          [](const Views& in, const TensorView& out) {
            return SiluMulParams{in[0], in[1], out};
          },
          [](double x, double y, double out) { return silu_bound(x, y, out) + kUnit * std::abs(out); }),
  };
}

class Rowwise : public ::testing::TestWithParam<Op> {
 protected:
  // fn(implementation) for all but the reference that run on this machine; the reference alone if none does.
  template <class Fn>
  void for_implementations(Fn fn) {
    const Op& op = GetParam();
    bool any = false;
    for (size_t i = 0; i + 1 < op.num_implementations; ++i) {
      if (!op.runs_here(i)) continue;
      SCOPED_TRACE(::testing::Message() << op.name << ", implementation " << i);
      any = true;
      fn(i);
    }
    if (!any) fn(op.num_implementations - 1);
  }

  Views draw(Random& random, DType dtype, const Shape& shape, Values values = Values::kNormal) {
    Views in;
    for (size_t i = 0; i < GetParam().num_inputs; ++i) {
      storage_.push_back(random.tensor(dtype, shape, values, 4.0f));
      in.push_back(storage_.back().view());
    }
    return in;
  }

  // A strided view that holds `pattern`.
  TensorView output(DType dtype, const Shape& shape, PoisonPattern pattern = PoisonPattern::kNan) {
    padded_.push_back(testing::padded(dtype, shape, 3, pattern));
    return padded_.back().view;
  }

  TensorView run(size_t implementation, const Views& in, DType out_dtype = DType::kF32, int num_threads = 1,
                 PoisonPattern pattern = PoisonPattern::kNan) {
    const TensorView out = output(out_dtype, in[0].shape(), pattern);
    GetParam().run(implementation, in, out, num_threads);
    return out;
  }

  TensorView converted(const TensorView& from, DType dtype) {
    storage_.push_back(Random(0).tensor(dtype, from.shape(), Values::kZeros));
    const TensorView to = storage_.back().view();
    const auto bytes = [](const TensorView& v, int64_t row) {
      return static_cast<std::byte*>(v.raw()) +
             row * v.stride(0) * static_cast<int64_t>(dtype_bytes(v.dtype()));
    };
    for (int64_t t = 0; t < from.dim(0); ++t)
      convert_elements(bytes(from, t), from.dtype(), bytes(to, t), dtype, from.dim(1));
    return to;
  }

 private:
  std::vector<Tensor> storage_;
  std::vector<PaddedTensor> padded_;
};

const Shape kShapes[] = {{1, 1},   {3, 7},   {2, 64},   {5, 127}, {1, 129},
                         {3, 512}, {2, 513}, {4, 1536}, {1, 7168}};

TEST_P(Rowwise, agrees_with_the_reference_within_the_bound_of_f32) {
  const Op& op = GetParam();
  for (const Values values : {Values::kNormal, Values::kOutliers, Values::kZeros, Values::kTies}) {
    for (const Shape& shape : kShapes) {
      const uint64_t seed = test_seed(static_cast<uint64_t>(shape[1]));
      Random random(seed);
      const Views in = draw(random, DType::kF32, shape, values);
      const TensorView want = run(op.num_implementations - 1, in);
      const TensorView bound = output(DType::kF32, shape);
      for (int64_t t = 0; t < shape[0]; ++t)
        for (int64_t i = 0; i < shape[1]; ++i)
          bound.row<float>(t)[i] = static_cast<float>(
              op.bound(in[0].row<float>(t)[i], in.back().row<float>(t)[i], want.row<float>(t)[i]) *
              (1 + 1e-6));
      for_implementations([&](size_t i) { EXPECT_TRUE(testing::is_within(run(i, in), want, bound, seed)); });
    }
  }
}

TEST_P(Rowwise, bf16_operands_are_the_f32_ones_rounded) {
  for (const Shape& shape : kShapes) {
    Random random(test_seed());
    const Views in = draw(random, DType::kBF16, shape);
    Views wide;
    for (const TensorView& v : in) wide.push_back(converted(v, DType::kF32));
    for_implementations([&](size_t i) {
      const TensorView want = run(i, wide);
      EXPECT_TRUE(testing::same_bits(run(i, in), want));
      EXPECT_TRUE(testing::same_bits(run(i, in, DType::kBF16), converted(want, DType::kBF16)));
    });
  }
}

// contract: C3
TEST_P(Rowwise, no_bit_depends_on_what_the_output_held) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Random random(test_seed());
    const Views in = draw(random, dtype, {3, 515});
    for_implementations([&](size_t i) {
      const TensorView want = run(i, in, dtype);
      EXPECT_TRUE(testing::all_finite(want));
      for (const PoisonPattern pattern : testing::kPoisonPatterns)
        EXPECT_TRUE(testing::same_bits(run(i, in, dtype, 1, pattern), want)) << to_string(pattern);
    });
  }
}

TEST_P(Rowwise, writes_nothing_between_strided_rows) {
  for_implementations([&](size_t i) {
    Random random(test_seed());
    const Views in = draw(random, DType::kF32, {4, 33});
    const PaddedTensor out = testing::padded(DType::kF32, {4, 33}, 5, PoisonPattern::kLarge);
    const Tensor before = *out.storage.clone();
    GetParam().run(i, in, out.view, 1);
    EXPECT_TRUE(testing::same_bits(out.storage.view().slice(1, 33, 38), before.view().slice(1, 33, 38)));
  });
}

// contract: C4 C5
TEST_P(Rowwise, a_row_has_the_same_bits_alone_in_a_batch_and_at_any_address) {
  Random random(test_seed());
  const Views in = draw(random, DType::kF32, {8, 1000});
  for_implementations([&](size_t i) {
    const TensorView batch = run(i, in);
    for (int64_t t = 0; t < 8; ++t) {
      Views row;
      for (const TensorView& v : in) {  // row t begins t elements into its memory
        const TensorView moved = output(DType::kF32, {1, 1000 + t}).slice(1, t, 1000 + t);
        copy_elements(v.slice(0, t, t + 1), moved);
        row.push_back(moved);
      }
      EXPECT_TRUE(testing::same_bits(run(i, row), batch.slice(0, t, t + 1))) << t;
    }
  });
}

// contract: C5
TEST_P(Rowwise, threads_change_no_bit) {
  Random random(test_seed());
  const Views in = draw(random, DType::kF32, {70, 2048});
  for_implementations(
      [&](size_t i) { EXPECT_TRUE(testing::same_bits(run(i, in, DType::kF32, 3), run(i, in))); });
}

// contract: C4
TEST_P(Rowwise, a_bad_row_stays_bad_and_stays_alone) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    Random random(test_seed());
    const Views in = draw(random, DType::kF32, {3, 100});
    for_implementations([&](size_t i) {
      in[0].row<float>(1)[50] = 1;
      const TensorView good = run(i, in);
      in[0].row<float>(1)[50] = bad;
      const TensorView out = run(i, in);
      EXPECT_FALSE(testing::all_finite(out.slice(0, 1, 2))) << bad;
      EXPECT_TRUE(testing::same_bits(out.slice(0, 0, 1), good.slice(0, 0, 1)));
      EXPECT_TRUE(testing::same_bits(out.slice(0, 2, 3), good.slice(0, 2, 3)));
    });
  }
}

TEST_P(Rowwise, may_write_over_its_first_input) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for_implementations([&](size_t i) {
      Random random(test_seed());
      const Views in = draw(random, dtype, {3, 1100});
      const TensorView want = run(i, in, dtype);
      GetParam().run(i, in, in[0], 1);
      EXPECT_TRUE(testing::same_bits(in[0], want));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, Rowwise, ::testing::ValuesIn(all_ops()),
                         [](const auto& op) { return std::string(op.param.name); });

// Contract "fused equals unfused bit for bit where the arithmetic is the same": in f32, not in the reference.
TEST(SiluMul, equals_silu_then_mul_bit_for_bit_in_f32) {
  Random random(test_seed());
  const auto draw = [&] { return random.tensor(DType::kF32, {5, 777}, Values::kNormal, 8); };
  const Tensor gate = draw(), up = draw(), silu = draw(), unfused = draw(), fused = draw();
  const ops::SiluParams first{gate.view(), silu.view()};
  const ops::MulParams second{silu.view(), up.view(), unfused.view()};
  const ops::SiluMulParams both{gate.view(), up.view(), fused.view()};
  const auto all = kernels::implementations<ops::SiluMulParams>();
  for (size_t i = 0; i + 1 < all.size(); ++i) {
    if (all[i].refuse(both, cpu_features()) != nullptr) continue;
    kernels::implementations<ops::SiluParams>()[i].run(first, {});
    kernels::implementations<ops::MulParams>()[i].run(second, {});
    all[i].run(both, {});
    EXPECT_TRUE(testing::same_bits(fused.view(), unfused.view())) << all[i].name;
  }
}

TEST(RmsNorm, reads_weights_of_every_type) {
  Random random(test_seed());
  const Tensor x = random.tensor(DType::kF32, {2, 600});
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Tensor weight = random.tensor(dtype, {600}), wide = random.tensor(DType::kF32, {600});
    convert_elements(weight.view().raw(), dtype, wide.view().raw(), DType::kF32, 600);
    for (const auto& impl : kernels::implementations<ops::RmsNormParams>()) {
      const Tensor out = random.tensor(DType::kF32, {2, 600}), want = random.tensor(DType::kF32, {2, 600});
      const ops::RmsNormParams p{x.view(), weight.view(), out.view(), {}},
          q{x.view(), wide.view(), want.view(), {}};
      if (impl.refuse != nullptr && impl.refuse(p, cpu_features()) != nullptr) continue;
      impl.run(p, {});
      impl.run(q, {});
      EXPECT_TRUE(testing::same_bits(out.view(), want.view())) << impl.name << " " << to_string(dtype);
    }
  }
}

TEST(RmsNorm, a_row_of_zeros_is_zeros) {
  Random random(1);
  const Tensor x = random.tensor(DType::kF32, {1, 64}, Values::kZeros),
               out = random.tensor(DType::kF32, {1, 64});
  const ops::RmsNormParams p{x.view(), norm_weight(64), out.view(), {}};
  for (const auto& impl : kernels::implementations<ops::RmsNormParams>()) {
    if (impl.refuse != nullptr && impl.refuse(p, cpu_features()) != nullptr) continue;
    impl.run(p, {});
    for (int i = 0; i < 64; ++i) EXPECT_EQ(out.data<float>()[i], 0.0f);
  }
}

// Far tails and non-finite inputs, which random draws do not reach.
TEST(Silu, tails_are_as_the_formula_says) {
  float x[] = {-1e30f, -1000, -88, -87, -20, -1e-30f, 0, 1e-30f, 20, 87, 88, 1000, 1e30f, INFINITY, NAN},
        out[15];
  const ops::SiluParams p{{x, DType::kF32, {1, 15}}, {out, DType::kF32, {1, 15}}};
  for (const auto& impl : kernels::implementations<ops::SiluParams>()) {
    if (impl.refuse != nullptr && impl.refuse(p, cpu_features()) != nullptr) continue;
    impl.run(p, {});
    for (int i = 0; i < 13; ++i) {
      const double want = double{x[i]} / (1 + std::exp(-double{x[i]}));
      EXPECT_NEAR(out[i], want, silu_bound(x[i], 1, want)) << impl.name << " silu(" << x[i] << ")";
    }
    EXPECT_EQ(out[13], INFINITY);
    EXPECT_TRUE(std::isnan(out[14]));
  }
}

TEST(GatherRows, takes_the_named_rows_and_nothing_else) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Random random(test_seed());
    const PaddedTensor x = testing::padded(dtype, {9, 31}, 2);
    random.fill(x.view);
    const Tensor rows = random.ids({20}, 0, 8);
    for (const auto& impl : kernels::implementations<ops::GatherRowsParams>()) {
      for (const PoisonPattern pattern : testing::kPoisonPatterns) {
        const PaddedTensor out = testing::padded(dtype, {20, 31}, 4, pattern);
        const Tensor before = *out.storage.clone();
        const ops::GatherRowsParams p{x.view, rows.view(), out.view};
        ASSERT_TRUE(check(p).ok());
        impl.run(p, {});
        for (int64_t i = 0; i < 20; ++i) {
          const int32_t row = rows.data<int32_t>()[i];
          EXPECT_TRUE(testing::same_bits(out.view.slice(0, i, i + 1), x.view.slice(0, row, row + 1)));
        }
        EXPECT_TRUE(testing::same_bits(out.storage.view().slice(1, 31, 35), before.view().slice(1, 31, 35)));
      }
    }
  }
}

TEST(GatherRowsDeathTest, a_row_out_of_range_is_named) {
  Random random(1);
  const Tensor x = random.tensor(DType::kF32, {4, 8}), out = random.tensor(DType::kF32, {1, 8});
  int32_t row = INT32_MAX;
  const ops::GatherRowsParams p{x.view(), {&row, DType::kI32, {1}}, out.view()};
  for (const auto& impl : kernels::implementations<ops::GatherRowsParams>())
    EXPECT_DEATH(impl.run(p, {}), "row 2147483647 of 4");
}

}  // namespace
}  // namespace latent
