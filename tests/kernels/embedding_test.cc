// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/run_kernel.h"
#include "kernels/weight_values.h"
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
                        rounded(0.5f * weight_element(table.view(), ids.data<int32_t>()[t], i), out_type))
                  << impl.name << " [" << t << ", " << i << "]";
        }
      }
    }
  }
}

}  // namespace
}  // namespace latent
