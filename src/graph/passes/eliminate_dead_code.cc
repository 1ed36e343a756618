// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "graph/passes/passes.h"
#include "graph/rewrite.h"

namespace latent::graph {
namespace {

bool writes_cache(const Node& node) {
  return node.op == OpKind::kKvCacheWrite || node.op == OpKind::kRopeKvCacheWrite;
}

// Backwards over `nodes`: keeps what is live and marks what it reads as live. Returns how many were removed.
int sweep(std::vector<Node>& nodes, std::vector<bool>& live) {
  std::vector<bool> dead(nodes.size());
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = nodes[i];
    const auto is_live = [&](ValueId id) { return bool{live[static_cast<size_t>(id)]}; };
    dead[i] = !writes_cache(node) && std::none_of(node.outputs.begin(), node.outputs.end(), is_live);
    if (dead[i]) continue;
    for (const ValueId id : node.inputs) live[static_cast<size_t>(id)] = true;
  }
  const auto removed = static_cast<int>(std::count(dead.begin(), dead.end(), true));
  erase_nodes(nodes, dead);
  return removed;
}

}  // namespace

int eliminate_dead_code(Graph& graph) {
  std::vector<bool> live(graph.values.size());
  for (const ValueId id : graph.outputs) live[static_cast<size_t>(id)] = true;
  const int removed = sweep(graph.nodes, live);
  return removed + sweep(graph.prologue, live);
}

}  // namespace latent::graph
