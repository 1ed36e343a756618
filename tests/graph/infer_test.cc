// SPDX-License-Identifier: Apache-2.0
#include "graph/infer.h"

#include <gtest/gtest.h>

#include "graph/builder.h"

namespace latent::graph {
namespace {

class InferTest : public ::testing::Test {
 protected:
  ValueId value(Dims dims) {
    graph_.values.push_back({.name = "v" + std::to_string(graph_.values.size()), .dims = std::move(dims)});
    return static_cast<ValueId>(graph_.values.size() - 1);
  }
  Result<std::vector<Dims>> infer(OpKind op, std::vector<ValueId> inputs, OpAttrs attrs = {}, Dims out = {}) {
    return infer_dims(graph_,
                      {.op = op, .attrs = attrs, .inputs = std::move(inputs), .outputs = {value(out)}});
  }
  Graph graph_;
};

TEST_F(InferTest, symbols_pass_through) {
  const ValueId x = value({Symbol::kNumTokens, 12}), w = value({20, 12});
  EXPECT_EQ(infer(OpKind::kLinear, {x, w})->front(), (Dims{Symbol::kNumTokens, 20}));
  EXPECT_EQ(infer(OpKind::kGatherRows, {x, value({Symbol::kNumOutputs})})->front(),
            (Dims{Symbol::kNumOutputs, 12}));
}

TEST_F(InferTest, a_symbol_never_equals_a_number_or_another_symbol) {
  const ValueId x = value({Symbol::kNumTokens, 12});
  EXPECT_FALSE(infer(OpKind::kAdd, {x, value({Symbol::kNumOutputs, 12})}).ok());
  EXPECT_FALSE(infer(OpKind::kAdd, {x, value({12, 12})}).ok());
}

TEST_F(InferTest, wrong_operands_are_named_with_their_shapes) {
  const auto dims = infer(OpKind::kLinear, {value({Symbol::kNumTokens, 12}), value({20, 13})});
  ASSERT_FALSE(dims.ok());
  EXPECT_EQ(dims.error().message, "linear: operands do not fit: [num_tokens, 12], [20, 13]");
}

TEST_F(InferTest, a_reshape_keeps_the_number_of_elements) {
  const ValueId x = value({Symbol::kNumTokens, 12});
  EXPECT_TRUE(infer(OpKind::kReshape, {x}, {}, {Symbol::kNumTokens, 3, 4}).ok());
  EXPECT_FALSE(infer(OpKind::kReshape, {x}, {}, {Symbol::kNumTokens, 13}).ok());
  EXPECT_FALSE(infer(OpKind::kReshape, {x}, {}, {Symbol::kNumSeqs, 12}).ok());
}

TEST_F(InferTest, slices_stay_inside) {
  const ValueId x = value({Symbol::kNumTokens, 12});
  EXPECT_EQ(infer(OpKind::kSlice, {x}, SliceAttrs{1, 4, 12})->front(), (Dims{Symbol::kNumTokens, 8}));
  EXPECT_FALSE(infer(OpKind::kSlice, {x}, SliceAttrs{1, 4, 13}).ok());
  EXPECT_FALSE(infer(OpKind::kSlice, {x}, SliceAttrs{0, 0, 1}).ok());
  EXPECT_FALSE(infer(OpKind::kSlice, {x}, SliceAttrs{2, 0, 1}).ok());
}

TEST_F(InferTest, the_router_gives_weights_and_ids) {
  const ops::RouterAttrs attrs{.num_experts = 8, .top_k = 3};
  const auto dims = infer(OpKind::kRouter, {value({Symbol::kNumTokens, 8})}, attrs);
  ASSERT_EQ(dims->size(), 2u);
  EXPECT_EQ((*dims)[1], (Dims{Symbol::kNumTokens, 3}));
  EXPECT_FALSE(infer(OpKind::kRouter, {value({Symbol::kNumTokens, 9})}, attrs).ok());
}

TEST(Builder, misuse_is_our_bug) {
  GraphBuilder b("g", DType::kF32);
  const ValueId x = b.input("x", DType::kF32, {Symbol::kNumTokens, 12});
  const ValueId w = b.weight("w", {20, 13}, {});
  EXPECT_DEATH(b.linear(x, w), "operands do not fit");
  EXPECT_DEATH(b.rename(x, "w"), "two values named");
}

}  // namespace
}  // namespace latent::graph
