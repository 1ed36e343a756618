// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/run_kernel.h"
#include "testing/random.h"

namespace latent {
namespace {

using testing::PaddedTensor;
using testing::Random;
using testing::run_every_way;
using testing::same_bits;
using testing::serving;
using testing::Values;

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
