// SPDX-License-Identifier: Apache-2.0
#include "graph/print.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/tiny_graph.h"

namespace latent::graph {
namespace {

size_t occurrences(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + word.size())) ++n;
  return n;
}

TEST(Print, dot_has_a_box_for_every_node) {
  const Graph graph = testing::tiny_graph();
  const std::string dot = print_dot(graph);
  EXPECT_EQ(occurrences(dot, "[label=\"") - occurrences(dot, " -> n") + occurrences(dot, "\" -> n"),
            graph.nodes.size());
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '{'), 1);
}

TEST(Print, svg_draws_like_layers_once) {
  Graph graph = testing::tiny_graph();
  const size_t boxes = occurrences(print_svg(graph), "<g>");
  EXPECT_EQ(boxes, graph.nodes.size());
  // A second layer with the structure of the first adds no box.
  std::vector<Node> copies;
  for (const Node& node : graph.nodes)
    if (node.layer == 0) {
      copies.push_back(node);
      copies.back().layer = 1;
    }
  const auto end =
      std::find_if(graph.nodes.rbegin(), graph.nodes.rend(), [](const Node& n) { return n.layer == 0; });
  graph.nodes.insert(end.base(), copies.begin(), copies.end());
  const std::string svg = print_svg(graph);
  EXPECT_EQ(occurrences(svg, "<g>"), boxes);
  EXPECT_NE(svg.find("layers 0 to 1, all alike"), std::string::npos);
}

}  // namespace
}  // namespace latent::graph
