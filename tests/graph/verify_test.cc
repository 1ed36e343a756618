// SPDX-License-Identifier: Apache-2.0
#include "graph/verify.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/rewrite.h"
#include "graph/tiny_graph.h"

namespace latent::graph {
namespace {

using testing::tiny_graph;

size_t find(const Graph& graph, OpKind op) {
  const auto it =
      std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.op == op; });
  return static_cast<size_t>(it - graph.nodes.begin());
}

void expect_refused(const Graph& graph, const std::string& word) {
  const Status status = verify(graph);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find(word), std::string::npos) << status.error().message;
}

TEST(Verify, a_built_graph_is_sound) { EXPECT_TRUE(verify(tiny_graph()).ok()); }

TEST(Verify, refuses_a_read_before_the_write) {
  Graph graph = tiny_graph();
  std::swap(graph.nodes[find(graph, OpKind::kSilu)], graph.nodes[find(graph, OpKind::kMul)]);
  expect_refused(graph, "before it is computed");
}

TEST(Verify, refuses_a_second_writer) {
  Graph graph = tiny_graph();
  graph.nodes.push_back(graph.nodes[find(graph, OpKind::kSilu)]);
  expect_refused(graph, "computed twice");
}

TEST(Verify, refuses_an_old_version_of_a_cache) {
  Graph graph = tiny_graph();
  Node& attention = graph.nodes[find(graph, OpKind::kMlaAttention)];
  attention.inputs[2] = graph.root(attention.inputs[2]);
  expect_refused(graph, "old version");
}

TEST(Verify, refuses_shapes_that_do_not_follow) {
  Graph graph = tiny_graph();
  graph.value(graph.nodes[find(graph, OpKind::kMlaAttention)].outputs[0]).dims[1] = Dim(3);
  expect_refused(graph, "mla_attention");
}

TEST(Verify, refuses_operands_that_do_not_fit) {
  Graph graph = tiny_graph();
  graph.nodes[find(graph, OpKind::kAdd)].inputs[1] = graph.nodes[find(graph, OpKind::kSilu)].inputs[0];
  EXPECT_FALSE(verify(graph).ok());
}

TEST(Verify, refuses_two_values_of_one_name) {
  Graph graph = tiny_graph();
  graph.values[3].name = graph.values[4].name;
  expect_refused(graph, "two values named");
}

TEST(Verify, refuses_a_prologue_that_reads_the_step) {
  Graph graph = tiny_graph();
  graph.prologue.push_back(graph.nodes.front());
  graph.nodes.erase(graph.nodes.begin());
  expect_refused(graph, "no weight");
}

TEST(Verify, refuses_an_output_that_nobody_computes) {
  Graph graph = tiny_graph();
  graph.outputs.push_back(add_value(graph, "orphan", DType::kF32, {1}));
  expect_refused(graph, "never computed");
}

}  // namespace
}  // namespace latent::graph
