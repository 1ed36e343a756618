// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/passes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/pipeline.h"
#include "graph/print.h"
#include "graph/tiny_graph.h"
#include "graph/verify.h"

namespace latent::graph {
namespace {

using testing::expect_golden;
using testing::tiny_graph;

int count(const Graph& graph, OpKind op) {
  return static_cast<int>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.op == op; }));
}

Graph after(int (*pass)(Graph&), int matches) {
  Graph graph = tiny_graph();
  EXPECT_EQ(pass(graph), matches);
  const Status status = verify(graph);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  return graph;
}

TEST(Passes, as_built) { expect_golden("as_built.txt", print_text(tiny_graph())); }

TEST(Passes, absorb_weights) {
  const Graph graph = after(absorb_weights, 1);
  EXPECT_EQ(count(graph, OpKind::kHeadLinear), 2);
  EXPECT_EQ(count(graph, OpKind::kMlaAttention), 1);
  expect_golden("absorb_weights.txt", print_text(graph));
}

TEST(Passes, absorbed_weights_fold_into_the_prologue) {
  Graph graph = tiny_graph();
  EXPECT_EQ(fold_constants(graph), 0);
  EXPECT_EQ(absorb_weights(graph), 1);
  EXPECT_EQ(fold_constants(graph), 4);  // reshape, two slices, transpose
  EXPECT_EQ(fold_constants(graph), 0);
  ASSERT_TRUE(verify(graph).ok());
  expect_golden("fold_constants.txt", print_text(graph));
}

TEST(Passes, fuse_silu_mul) {
  const Graph graph = after(fuse_silu_mul, 1);
  EXPECT_EQ(count(graph, OpKind::kSilu) + count(graph, OpKind::kMul), 0);
  expect_golden("fuse_silu_mul.txt", print_text(graph));
}

TEST(Passes, fuse_silu_mul_leaves_a_silu_that_is_read_twice) {
  Graph graph = tiny_graph();
  const auto silu = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                 [](const Node& n) { return n.op == OpKind::kSilu; });
  graph.outputs.push_back(silu->outputs[0]);
  EXPECT_EQ(fuse_silu_mul(graph), 0);
  EXPECT_EQ(count(graph, OpKind::kSilu), 1);
}

TEST(Passes, fuse_rope_cache_write) {
  const Graph graph = after(fuse_rope_cache_write, 1);
  EXPECT_EQ(count(graph, OpKind::kKvCacheWrite), 0);
  EXPECT_EQ(count(graph, OpKind::kRope), 1);  // that of the queries
  expect_golden("fuse_rope_cache_write.txt", print_text(graph));
}

TEST(Passes, dead_code_goes_and_cache_writes_stay) {
  Graph graph = after(eliminate_dead_code, 0);
  graph.outputs.clear();
  EXPECT_GT(eliminate_dead_code(graph), 0);
  EXPECT_EQ(count(graph, OpKind::kKvCacheWrite), 1);
  EXPECT_EQ(count(graph, OpKind::kMlaAttention), 0);
  EXPECT_EQ(count(graph, OpKind::kRope), 1);  // the cache write needs its own
}

TEST(Passes, poison_marks_what_nodes_write_and_nothing_else) {
  Graph graph = tiny_graph();
  EXPECT_EQ(mark_poison(graph, PoisonPattern::kNone), 0);
  const int marked = mark_poison(graph, PoisonPattern::kInf);
  EXPECT_GT(marked, 10);
  for (const Value& v : graph.values)
    EXPECT_EQ(v.poison == PoisonPattern::kInf, v.kind == ValueKind::kIntermediate && v.alias_of == kNoValue)
        << v.name;
}

TEST(Pipeline, counts_the_matches_of_every_pass) {
  Graph graph = tiny_graph();
  const auto reports = run_pipeline(graph, {.form = ops::AttentionForm::kAbsorbed});
  ASSERT_TRUE(reports.ok());
  std::string text;
  for (const PassReport& r : *reports) text += r.name + "=" + std::to_string(r.matches) + " ";
  EXPECT_EQ(text,
            "absorb_weights=1 fold_constants=4 fuse_rope_cache_write=1 fuse_silu_mul=1 eliminate_dead_code=0 "
            "mark_poison=0 ");
  expect_golden("pipeline_decode.txt", print_text(graph));
}

TEST(Pipeline, a_pass_can_be_switched_off_by_name) {
  Graph graph = tiny_graph();
  const auto reports = run_pipeline(graph, {.disabled = {"fuse_silu_mul"}});
  ASSERT_TRUE(reports.ok());
  EXPECT_EQ(count(graph, OpKind::kSilu), 1);
  EXPECT_EQ(count(graph, OpKind::kRopeKvCacheWrite), 1);
}

TEST(Pipeline, an_unknown_pass_name_is_an_error_that_lists_the_names) {
  Graph graph = tiny_graph();
  const auto reports = run_pipeline(graph, {.disabled = {"fuse_everything"}});
  ASSERT_FALSE(reports.ok());
  EXPECT_NE(reports.error().message.find("'fuse_everything'"), std::string::npos);
  EXPECT_NE(reports.error().message.find("absorb_weights"), std::string::npos);
}

}  // namespace
}  // namespace latent::graph
