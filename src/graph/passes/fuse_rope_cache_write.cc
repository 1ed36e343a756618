// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/passes.h"
#include "graph/rewrite.h"

namespace latent::graph {
namespace {

// The node that computes `id` if it is of kind `op` and `id` has one reader; null else.
const Node* sole_producer(const Graph& graph, const Uses& uses, ValueId id, OpKind op) {
  const int producer = uses.producer[static_cast<size_t>(id)];
  if (producer < 0 || uses.num_uses[static_cast<size_t>(id)] != 1) return nullptr;
  const Node& node = graph.nodes[static_cast<size_t>(producer)];
  return node.op == op ? &node : nullptr;
}

}  // namespace

int fuse_rope_cache_write(Graph& graph) {
  const Uses uses = find_uses(graph);
  int matches = 0;
  for (Node& write : graph.nodes) {
    if (write.op != OpKind::kKvCacheWrite) continue;
    // k_pe [T, R] -> reshape [T, 1, R] -> rope -> reshape [T, R] -> write
    const Node* flat = sole_producer(graph, uses, write.inputs[1], OpKind::kReshape);
    const Node* rope = flat == nullptr ? nullptr : sole_producer(graph, uses, flat->inputs[0], OpKind::kRope);
    const Node* heads =
        rope == nullptr ? nullptr : sole_producer(graph, uses, rope->inputs[0], OpKind::kReshape);
    if (heads == nullptr || graph.value(heads->inputs[0]).dims.size() != 2) continue;
    write.op = OpKind::kRopeKvCacheWrite;
    write.attrs = rope->attrs;
    write.inputs[1] = heads->inputs[0];
    write.inputs.push_back(rope->inputs[1]);
    write.inputs.push_back(rope->inputs[2]);
    ++matches;
  }
  if (matches > 0) eliminate_dead_code(graph);  // the rope and its two views
  return matches;
}

}  // namespace latent::graph
