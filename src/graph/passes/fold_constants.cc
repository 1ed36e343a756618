// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "graph/passes/passes.h"
#include "graph/rewrite.h"

namespace latent::graph {

int fold_constants(Graph& graph) {
  std::vector<bool> constant(graph.values.size());
  for (size_t i = 0; i < graph.values.size(); ++i) constant[i] = graph.values[i].kind == ValueKind::kWeight;
  for (const Node& node : graph.prologue)
    for (const ValueId id : node.outputs) constant[static_cast<size_t>(id)] = true;

  std::vector<bool> folded(graph.nodes.size());
  int matches = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    folded[i] = std::all_of(node.inputs.begin(), node.inputs.end(),
                            [&](ValueId id) { return constant[static_cast<size_t>(id)]; });
    if (!folded[i]) continue;
    for (const ValueId id : node.outputs) constant[static_cast<size_t>(id)] = true;
    graph.prologue.push_back(node);
    ++matches;
  }
  erase_nodes(graph.nodes, folded);
  return matches;
}

}  // namespace latent::graph
