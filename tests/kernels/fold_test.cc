// SPDX-License-Identifier: Apache-2.0
// dequantize.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/run_kernel.h"
#include "kernels/weight_values.h"
#include "tensor/float_types.h"
#include "testing/random.h"

namespace latent {
namespace {

using testing::kWeightTypes;
using testing::PaddedTensor;
using testing::Random;
using testing::rounded;
using testing::run_every_way;
using testing::serving;
using testing::weight_element;
using testing::Weights;

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
                        rounded(weight_element(weight.view(), n, k), out_type))
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

}  // namespace
}  // namespace latent
