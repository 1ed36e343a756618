// SPDX-License-Identifier: Apache-2.0
// Shape rules accept what the contracts describe and name what they refuse. Views point nowhere: rules read
// no element.
#include <gtest/gtest.h>

#include "ops/elementwise.h"
#include "ops/fold.h"
#include "ops/linear.h"
#include "ops/moe.h"

namespace latent::ops {
namespace {

std::byte g_memory[1];

TensorView view(DType dtype, const Shape& shape) { return {g_memory, dtype, shape}; }
TensorView f32(const Shape& shape) { return view(DType::kF32, shape); }
TensorView i32(const Shape& shape) { return view(DType::kI32, shape); }

#define EXPECT_REFUSED(params, words)                                                           \
  do {                                                                                          \
    const Status status = check(params);                                                        \
    ASSERT_FALSE(status.ok());                                                                  \
    EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message; \
  } while (false)

TEST(ShapeRules, linear_ties_its_three_operands) {
  LinearParams p{.x = f32({3, 8}), .weight = {.values = f32({5, 8}), .scales = {}}, .out = f32({3, 5})};
  EXPECT_TRUE(check(p).ok());
  p.out = f32({3, 6});
  EXPECT_REFUSED(p, "out is f32[3, 6]");
  p.out = f32({3, 5});
  p.x = view(DType::kF16, {3, 8});
  EXPECT_REFUSED(p, "x has dtype f16");
}

TEST(ShapeRules, block_scales_cover_the_clipped_grid) {
  LinearParams p{.x = f32({3, 576}),
                 .weight = {.values = view(DType::kF8E4M3, {130, 576}),
                            .scales = f32({2, 5}),
                            .block_rows = 128,
                            .block_cols = 128},
                 .out = f32({3, 130})};
  EXPECT_TRUE(check(p).ok());
  p.weight.scales = f32({2, 4});
  EXPECT_REFUSED(p, "do not fit");
  p.weight.scales = {};
  EXPECT_REFUSED(p, "needs block scales");
  p.weight = {.values = f32({130, 576}), .scales = f32({2, 5}), .block_rows = 128, .block_cols = 128};
  EXPECT_REFUSED(p, "not f8_e4m3");
}

// contract: C7
TEST(ShapeRules, ids_of_64_bits_are_refused_by_name) {
  GatherRowsParams gather{f32({4, 8}), view(DType::kI64, {2}), f32({2, 8})};
  EXPECT_REFUSED(gather, "rows has dtype i64");
  EmbeddingParams embedding{view(DType::kI64, {2}), {.values = f32({10, 8}), .scales = {}}, f32({2, 8}), {}};
  EXPECT_REFUSED(embedding, "ids has dtype i64");
  MoeExpertsParams moe{.x = f32({2, 8}),
                       .weights = f32({2, 1}),
                       .ids = view(DType::kI64, {2, 1}),
                       .gate = {},
                       .up = {},
                       .down = {},
                       .out = f32({2, 8}),
                       .attrs = {}};
  EXPECT_REFUSED(moe, "ids has dtype i64");
}

RouterParams router(int num_experts, int top_k, int num_groups, int topk_group) {
  return {
      .logits = f32({2, num_experts}),
      .bias = f32({num_experts}),
      .weights = f32({2, top_k}),
      .ids = i32({2, top_k}),
      .attrs = {
          .num_experts = num_experts, .top_k = top_k, .num_groups = num_groups, .topk_group = topk_group}};
}

TEST(ShapeRules, a_router_needs_enough_experts_in_its_groups) {
  EXPECT_TRUE(check(router(64, 8, 8, 3)).ok());
  EXPECT_TRUE(check(router(1, 1, 1, 1)).ok());
  EXPECT_REFUSED(router(64, 8, 7, 3), "do not make 7 groups");
  EXPECT_REFUSED(router(64, 9, 8, 1), "hold 8 experts, 9 are asked for");
  EXPECT_REFUSED(router(64, 8, 8, 9), "top 9 of 8 groups");
  EXPECT_REFUSED(router(64, 8, 0, 1), "do not make 0 groups");
}

TEST(ShapeRules, experts_share_type_and_shape) {
  const WeightView inner{.values = f32({4, 6, 8}), .scales = {}},
      outer{.values = f32({4, 8, 6}), .scales = {}};
  MoeExpertsParams p{.x = f32({2, 8}),
                     .weights = f32({2, 3}),
                     .ids = i32({2, 3}),
                     .gate = inner,
                     .up = inner,
                     .down = outer,
                     .out = f32({2, 8}),
                     .attrs = {}};
  EXPECT_TRUE(check(p).ok());
  p.down = inner;
  EXPECT_REFUSED(p, "down is f32[4, 6, 8]");
}

TEST(ShapeRules, row_wise_operands_have_one_shape) {
  EXPECT_TRUE(check(AddParams{f32({2, 8}), view(DType::kBF16, {2, 8}), f32({2, 8}), {}}).ok());
  EXPECT_REFUSED((MulParams{f32({2, 8}), f32({2, 9}), f32({2, 8})}), "operand is f32[2, 9]");
  EXPECT_REFUSED((RmsNormParams{f32({2, 8}), f32({9}), f32({2, 8}), {}}), "weight is f32[9]");
  EXPECT_REFUSED((GatherRowsParams{f32({4, 8}), i32({2}), view(DType::kBF16, {2, 8})}), "out has dtype bf16");
}

TEST(ShapeRules, a_transpose_names_axes_it_does_not_have) {
  EXPECT_TRUE(check(TransposeParams{f32({2, 3, 4}), f32({2, 4, 3}), {1, 2}}).ok());
  EXPECT_REFUSED((TransposeParams{f32({2, 3}), f32({3, 2}), {0, 2}}), "axes 0 and 2");
  EXPECT_REFUSED((TransposeParams{f32({2, 3}), f32({2, 3}), {0, 1}}), "f32[2, 3] of f32[2, 3]");
}

}  // namespace
}  // namespace latent::ops
