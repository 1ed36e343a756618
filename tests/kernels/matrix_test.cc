// SPDX-License-Identifier: Apache-2.0
// The registry of the operators that read weight matrices.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernels/registry.h"
#include "testing/random.h"

namespace latent {
namespace {

template <class Params>
class MatrixRegistry : public ::testing::Test {};
using Operators = ::testing::Types<ops::LinearParams, ops::HeadLinearParams, ops::EmbeddingParams,
                                   ops::MoeExpertsParams, ops::DequantizeParams, ops::TransposeParams>;
TYPED_TEST_SUITE(MatrixRegistry, Operators);

TYPED_TEST(MatrixRegistry, ends_with_a_reference_that_serves_everything) {
  const auto all = kernels::implementations<TypeParam>();
  ASSERT_FALSE(all.empty());
  EXPECT_STREQ(all.back().name, "ref");
  EXPECT_EQ(all.back().refuse, nullptr);
}

TYPED_TEST(MatrixRegistry, names_each_implementation_once) {
  std::set<std::string> names;
  for (const auto& impl : kernels::implementations<TypeParam>())
    EXPECT_TRUE(names.insert(impl.name).second) << impl.name;
}

TEST(LinearRegistry, a_scalar_machine_gets_the_reference_and_a_reason_from_the_others) {
  testing::Random random(testing::test_seed());
  const testing::Weights weight(random, DType::kBF16, {4, 64});
  const Tensor x = random.tensor(DType::kBF16, {2, 64}), out = *Tensor::create(DType::kF32, {2, 4});
  const ops::LinearParams p{.x = x.view(), .weight = weight.view(), .out = out.view()};
  for (const auto& impl : kernels::implementations<ops::LinearParams>().first(3)) {
    const char* reason = impl.refuse(p, CpuFeatures{});
    ASSERT_NE(reason, nullptr) << impl.name;
    EXPECT_EQ(std::string(reason).substr(0, 6), "needs ");
  }
}

}  // namespace
}  // namespace latent
