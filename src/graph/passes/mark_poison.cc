// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/passes.h"

namespace latent::graph {

int mark_poison(Graph& graph, PoisonPattern pattern) {
  if (pattern == PoisonPattern::kNone) return 0;
  int matches = 0;
  for (const Node& node : graph.nodes) {
    for (const ValueId id : node.outputs) {
      Value& value = graph.value(id);
      if (value.alias_of != kNoValue) continue;  // views and caches live in memory that somebody else wrote
      value.poison = pattern;
      ++matches;
    }
  }
  return matches;
}

}  // namespace latent::graph
