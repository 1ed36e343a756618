// SPDX-License-Identifier: Apache-2.0
#include "graph/print.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

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

TEST(Print, svg_edges_go_beside_the_boxes_they_pass) {
  const std::string svg = print_svg(testing::tiny_graph());
  std::vector<std::pair<double, double>> columns;  // left and right edges of boxes
  for (size_t at = svg.find("<rect x="); at != std::string::npos; at = svg.find("<rect x=", at + 1)) {
    double x = 0, y = 0, width = 0;
    ASSERT_EQ(std::sscanf(svg.c_str() + at, "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\"", &x, &y, &width), 3);
    columns.emplace_back(x, x + width);
  }
  int passing = 0;
  for (size_t at = svg.find("<path d="); at != std::string::npos; at = svg.find("<path d=", at + 1)) {
    double x1, y1, c[6], lane, low;
    const int read = std::sscanf(svg.c_str() + at, "<path d=\"M%lf %lf C%lf %lf %lf %lf %lf %lf L%lf %lf",
                                 &x1, &y1, c, c + 1, c + 2, c + 3, c + 4, c + 5, &lane, &low);
    if (read != 10) {
      ASSERT_EQ(read, 8);
      EXPECT_LT(c[5] - y1, 30) << "an edge to the next row";
      continue;
    }
    ++passing;
    EXPECT_LE(y1, low);
    for (const auto& [left, right] : columns) EXPECT_TRUE(lane < left || lane > right) << lane;
  }
  EXPECT_GE(passing, 1) << "a residual";
}

}  // namespace
}  // namespace latent::graph
