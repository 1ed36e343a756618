// SPDX-License-Identifier: Apache-2.0
#include "graph/rewrite.h"

#include <utility>

namespace latent::graph {

Uses find_uses(const Graph& graph) {
  Uses uses{std::vector<int>(graph.values.size(), -1), std::vector<int>(graph.values.size(), 0)};
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId id : graph.nodes[i].outputs)
      uses.producer[static_cast<size_t>(id)] = static_cast<int>(i);
    for (const ValueId id : graph.nodes[i].inputs) ++uses.num_uses[static_cast<size_t>(id)];
  }
  for (const ValueId id : graph.outputs) ++uses.num_uses[static_cast<size_t>(id)];
  return uses;
}

ValueId add_value(Graph& graph, std::string name, DType dtype, Dims dims, ValueId alias_of) {
  graph.values.push_back(
      {.name = std::move(name), .dtype = dtype, .dims = std::move(dims), .alias_of = alias_of});
  return static_cast<ValueId>(graph.values.size() - 1);
}

void erase_nodes(std::vector<Node>& nodes, const std::vector<bool>& dead) {
  size_t kept = 0;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (!dead[i]) {
      if (kept != i) nodes[kept] = std::move(nodes[i]);
      ++kept;
    }
  nodes.resize(kept);
}

}  // namespace latent::graph
