// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/print.h"
#include "graph/rewrite.h"

namespace latent::graph {
namespace {

constexpr int kBoxWidth = 250, kBoxHeight = 34, kGapX = 24, kGapY = 26, kMargin = 24, kTitle = 30;

struct Box {
  size_t node = 0;
  int rank = 0;    // longest path from the group's start
  int column = 0;  // within its rank
};

// A run of consecutive nodes of one layer, and how many layers look the same.
struct Group {
  size_t begin = 0, end = 0;
  int layer = kNoLayer;
  int last_layer = kNoLayer;
};

std::string signature(const Graph& graph, size_t begin, size_t end) {
  std::string text;
  for (size_t i = begin; i < end; ++i) {
    const Node& node = graph.nodes[i];
    text += std::string(op_name(node.op)) + to_string(node.attrs);
    for (const ValueId id : node.inputs) text += to_string(graph.value(id).dims);
    text += ';';
  }
  return text;
}

std::vector<Group> group_layers(const Graph& graph) {
  std::vector<Group> groups;
  std::string last;
  for (size_t i = 0; i < graph.nodes.size();) {
    size_t end = i;
    const int layer = graph.nodes[i].layer;
    while (end < graph.nodes.size() && graph.nodes[end].layer == layer) ++end;
    std::string now = signature(graph, i, end);
    if (!groups.empty() && layer != kNoLayer && groups.back().last_layer == layer - 1 && now == last)
      groups.back().last_layer = layer;
    else
      groups.push_back({i, end, layer, layer});
    last = std::move(now);
    i = end;
  }
  return groups;
}

std::string group_title(const Group& g) {
  if (g.layer == kNoLayer) return g.begin == 0 ? "before the layers" : "after the layers";
  if (g.layer == g.last_layer) return fmt::format("layer {}", g.layer);
  return fmt::format("layers {} to {}, all alike", g.layer, g.last_layer);
}

std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

class Drawing {
 public:
  explicit Drawing(const Graph& graph) : graph_(graph), uses_(find_uses(graph)) {}

  std::string draw() {
    for (const Group& group : group_layers(graph_)) draw_group(group);
    const int width = kMargin * 2 + columns_ * (kBoxWidth + kGapX);
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" "
        "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        "<text x=\"{}\" y=\"20\" font-size=\"15\">{}</text>\n{}</svg>\n",
        width, y_ + kMargin, kMargin, escape(graph_.name), body_);
  }

 private:
  std::vector<Box> place(const Group& group) {
    std::map<size_t, int> rank;
    std::map<int, int> used;  // columns taken in a rank
    std::vector<Box> boxes;
    for (size_t i = group.begin; i < group.end; ++i) {
      int r = 0;
      for (const ValueId id : graph_.nodes[i].inputs) {
        const auto producer = rank.find(static_cast<size_t>(uses_.producer[static_cast<size_t>(id)]));
        if (producer != rank.end()) r = std::max(r, producer->second + 1);
      }
      rank[i] = r;
      boxes.push_back({i, r, used[r]++});
      columns_ = std::max(columns_, used[r]);
    }
    return boxes;
  }

  void draw_group(const Group& group) {
    const std::vector<Box> boxes = place(group);
    const int top = y_ + kTitle;
    std::map<size_t, std::pair<int, int>> at;  // node -> corner
    int bottom = top;
    for (const Box& b : boxes) {
      const int x = kMargin + b.column * (kBoxWidth + kGapX), y = top + b.rank * (kBoxHeight + kGapY);
      at[b.node] = {x, y};
      bottom = std::max(bottom, y + kBoxHeight);
    }
    body_ += fmt::format("<text x=\"{}\" y=\"{}\" fill=\"#555\">{}</text>\n", kMargin, y_ + 20,
                         group_title(group));
    for (const Box& b : boxes) draw_edges(b.node, at);
    for (const Box& b : boxes) draw_box(graph_.nodes[b.node], at[b.node]);
    y_ = bottom + kGapY;
  }

  void draw_edges(size_t node, const std::map<size_t, std::pair<int, int>>& at) {
    const auto [x, y] = at.at(node);
    for (const ValueId id : graph_.nodes[node].inputs) {
      const auto from = at.find(static_cast<size_t>(uses_.producer[static_cast<size_t>(id)]));
      if (from == at.end()) continue;
      draw_edge(from->second, {x, y});
    }
  }

  // From the bottom of a box to the top of another. Past boxes in between it goes beside them, in the gap
  // between two columns, so that a residual is seen to pass them.
  void draw_edge(std::pair<int, int> from, std::pair<int, int> to) {
    const int x1 = from.first + kBoxWidth / 2, y1 = from.second + kBoxHeight, x2 = to.first + kBoxWidth / 2,
              y2 = to.second;
    std::string path = fmt::format("M{} {} ", x1, y1);
    if (y2 - y1 > kGapY) {
      const int lane = from.first + kBoxWidth + 4 + 4 * (lanes_++ % 5);
      path += fmt::format("C{} {} {} {} {} {} L{} {} C{} {} {} {} ", x1, y1 + kGapY, lane, y1, lane,
                          y1 + kGapY, lane, y2 - kGapY, lane, y2, x2, y2 - kGapY);
    } else {
      path += fmt::format("C{} {} {} {} ", x1, y1 + kGapY, x2, y2 - kGapY);
    }
    body_ += fmt::format("<path d=\"{}{} {}\" fill=\"none\" stroke=\"#999\"/>\n", path, x2, y2);
  }

  void draw_box(const Node& node, std::pair<int, int> corner) {
    const char* fill = node.op == OpKind::kMlaAttention ? "#ffe3b3"
                       : is_view(node.op)               ? "#f4f4f4"
                                                        : "#e3eefc";
    const Value& out = graph_.value(node.outputs[0]);
    body_ += fmt::format(
        "<g><title>{}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"{}\" "
        "stroke=\"#667\"/>",
        escape(out.name + " " + to_string(node.attrs)), corner.first, corner.second, kBoxWidth, kBoxHeight,
        fill);
    body_ += fmt::format(
        "<text x=\"{}\" y=\"{}\">{}</text><text x=\"{}\" y=\"{}\" fill=\"#555\" font-size=\"10\">{}{}"
        "</text></g>\n",
        corner.first + 8, corner.second + 14, op_name(node.op), corner.first + 8, corner.second + 28,
        to_string(out.dtype), escape(to_string(out.dims)));
  }

  const Graph& graph_;
  Uses uses_;
  std::string body_;
  int y_ = kMargin;
  int columns_ = 1;
  int lanes_ = 0;
};

}  // namespace

std::string print_svg(const Graph& graph) { return Drawing(graph).draw(); }

}  // namespace latent::graph
