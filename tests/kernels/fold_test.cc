// SPDX-License-Identifier: Apache-2.0
// embedding, dequantize and transpose.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/run_kernel.h"
#include "tensor/convert.h"
#include "tensor/float_types.h"
#include "testing/random.h"

namespace latent {
namespace {

using testing::PaddedTensor;
using testing::Random;
using testing::run_every_way;
using testing::same_bits;
using testing::serving;
using testing::Values;
using testing::Weights;

constexpr DType kWeightTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3};

float value_of(const ops::WeightView& w, int64_t row, int64_t col) {
  const float v = element_to_float(w.values.raw(), w.values.dtype(), row * w.values.stride(0) + col);
  return w.scales.empty() ? v : v * w.scales.row<float>(row / w.block_rows)[col / w.block_cols];
}

float rounded(float value, DType dtype) {
  std::byte element[4];
  convert_elements(&value, DType::kF32, element, dtype, 1);
  return element_to_float(element, dtype, 0);
}

TEST(Embedding, rows_are_the_scaled_rows_of_the_table) {
  for (const DType weight_type : kWeightTypes) {
    for (const DType out_type : {DType::kF32, DType::kBF16}) {
      for (const int64_t tokens : {1, 7, 129}) {
        Random random(testing::test_seed());
        const Weights table(random, weight_type, {40, 300});
        const Tensor ids = random.ids({tokens}, 0, 39);
        const PaddedTensor out = testing::padded(out_type, {tokens, 300}, 4);
        const ops::EmbeddingParams p{
            .ids = ids.view(), .table = table.view(), .out = out.view, .attrs = {.scale = 0.5f}};
        ASSERT_TRUE(check(p).ok());
        for (const auto& impl : serving(p)) {
          run_every_way(impl, p);
          for (int64_t t = 0; t < tokens; ++t)
            for (int64_t i = 0; i < 300; ++i)
              ASSERT_EQ(element_to_float(p.out.raw(), out_type, t * p.out.stride(0) + i),
                        rounded(0.5f * value_of(table.view(), ids.data<int32_t>()[t], i), out_type))
                  << impl.name << " [" << t << ", " << i << "]";
        }
      }
    }
  }
}

// The product of a code and its scale is rounded to f32 at most once, then to out; both roundings in the
// bound.
TEST(Dequantize, every_element_is_value_times_scale) {
  for (const DType weight_type : kWeightTypes) {
    for (const DType out_type : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const Shape& shape : {Shape{1, 1}, Shape{129, 127}, Shape{576, 260}, Shape{7, 1000}}) {
        Random random(testing::test_seed());
        const Weights weight(random, weight_type, shape);
        const PaddedTensor out = testing::padded(out_type, shape, 2);
        const ops::DequantizeParams p{.weight = weight.view(), .out = out.view};
        ASSERT_TRUE(check(p).ok());
        for (const auto& impl : serving(p)) {
          run_every_way(impl, p);
          for (int64_t n = 0; n < shape[0]; ++n)
            for (int64_t k = 0; k < shape[1]; ++k)
              ASSERT_EQ(element_to_float(p.out.raw(), out_type, n * p.out.stride(0) + k),
                        rounded(value_of(weight.view(), n, k), out_type))
                  << impl.name << " [" << n << ", " << k << "]";
        }
      }
    }
  }
}

TEST(Dequantize, every_finite_e4m3_code_is_exact) {
  std::vector<uint8_t> codes;
  for (int b = 0; b < 256; ++b)
    if ((b & 0x7F) != 0x7F) codes.push_back(static_cast<uint8_t>(b));
  std::vector<float> scales(2, 1.0f), out(codes.size());
  const ops::DequantizeParams p{.weight = {.values = {codes.data(), DType::kF8E4M3, {1, 254}},
                                           .scales = {scales.data(), DType::kF32, {1, 2}},
                                           .block_rows = 128,
                                           .block_cols = 128},
                                .out = {out.data(), DType::kF32, {1, 254}}};
  for (const auto& impl : serving(p)) {
    run_every_way(impl, p);
    for (size_t i = 0; i < codes.size(); ++i) EXPECT_EQ(out[i], Float8E4M3{codes[i]}.to_float()) << impl.name;
  }
}

// Every pair of axes of every rank, contiguous or a slice, against the definition.
TEST(Transpose, out_is_x_with_the_axes_exchanged) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF8E4M3}) {
    for (const Shape& shape :
         {Shape{5}, Shape{7, 129}, Shape{64, 65}, Shape{3, 33, 40}, Shape{2, 3, 35, 34}}) {
      for (int a = 0; a < shape.rank(); ++a) {
        for (int b = 0; b < shape.rank(); ++b) {
          Random random(testing::test_seed());
          const PaddedTensor x = testing::padded(dtype, shape, 3);
          random.fill(x.view, Values::kUniform);
          const TensorView want = x.view.transpose(a, b);
          const Tensor out = *Tensor::create(dtype, want.shape());
          const ops::TransposeParams p{.x = x.view, .out = out.view(), .attrs = {.axis_a = a, .axis_b = b}};
          ASSERT_TRUE(check(p).ok());
          for (const auto& impl : serving(p)) {
            run_every_way(impl, p);
            EXPECT_TRUE(same_bits(out.view(), want)) << impl.name << " " << to_string(shape) << a << b;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace latent
