// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor_view.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tensor/matcher.h"
#include "tensor/tensor.h"

namespace latent {
namespace {

class TensorViewTest : public ::testing::Test {
 protected:
  TensorViewTest() : data_(2 * 3 * 8) { std::iota(data_.begin(), data_.end(), 0); }
  std::vector<int32_t> data_;
  TensorView view_{data_.data(), DType::kI32, Shape{2, 3, 8}};
};

TEST_F(TensorViewTest, slices_and_transposes_address_the_same_elements) {
  const TensorView v = view_.slice(2, 2, 5).transpose(0, 1);
  EXPECT_EQ(v.shape(), (Shape{3, 2, 3}));
  EXPECT_FALSE(v.is_contiguous());
  EXPECT_EQ(v.at(1).at(1).data<int32_t>()[2], 1 * 24 + 1 * 8 + 4);
}

TEST_F(TensorViewTest, a_reshape_of_a_strided_view_keeps_its_rows) {
  const TensorView v = view_.slice(2, 0, 4).reshape({6, 2, 2});
  EXPECT_EQ(v.at(5).at(1).data<int32_t>()[1], 5 * 8 + 3);
  EXPECT_EQ(view_.slice(2, 0, 4).reshape({6, 4}).stride(0), 8);
}

TEST_F(TensorViewTest, an_impossible_reshape_is_refused) {
  EXPECT_DEATH(view_.slice(2, 0, 4).reshape({24}), "needs a copy");
  EXPECT_DEATH(view_.reshape({5, 9}), "reshape");
}

TEST_F(TensorViewTest, copies_move_every_element_of_any_strides) {
  const TensorView from = view_.slice(2, 1, 8).transpose(0, 1);
  Result<Tensor> to = Tensor::create(DType::kI32, {3, 2, 7}, PoisonPattern::kNan);
  ASSERT_TRUE(to.ok());
  copy_elements(from, to->view());
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 2; ++j)
      for (int k = 0; k < 7; ++k) EXPECT_EQ(to->data<int32_t>()[(i * 2 + j) * 7 + k], j * 24 + i * 8 + k + 1);
}

TEST_F(TensorViewTest, a_tensor_too_large_to_address_is_an_error) {
  EXPECT_FALSE(Tensor::create(DType::kF32, {INT64_MAX / 4, 8}).ok());
  EXPECT_FALSE(Tensor::create(DType::kF32, {-1}).ok());
}

TEST_F(TensorViewTest, the_matcher_names_the_first_mismatch) {
  ShapeMatcher m("op");
  m.match("a", view_, {"rows", "3", "cols"}, {DType::kI32});
  EXPECT_TRUE(m.status().ok());
  EXPECT_EQ(m.size("cols"), 8);
  m.match("b", view_, {"cols", "3", "8"}, {DType::kI32});
  ASSERT_FALSE(m.status().ok());
  EXPECT_NE(m.status().error().message.find("b is i32[2, 3, 8]: dimension 0 (cols) should be 8"),
            std::string::npos)
      << m.status().error().message;
}

}  // namespace
}  // namespace latent
