// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/passes.h"
#include "graph/rewrite.h"

namespace latent::graph {
namespace {

// Which operand of `mul` is a silu that only it reads; -1 for none.
int silu_operand(const Graph& graph, const Uses& uses, const Node& mul) {
  for (int i = 0; i < 2; ++i) {
    const auto id = static_cast<size_t>(mul.inputs[static_cast<size_t>(i)]);
    const int producer = uses.producer[id];
    if (producer >= 0 && graph.nodes[static_cast<size_t>(producer)].op == OpKind::kSilu &&
        uses.num_uses[id] == 1)
      return i;
  }
  return -1;
}

}  // namespace

int fuse_silu_mul(Graph& graph) {
  const Uses uses = find_uses(graph);
  std::vector<bool> dead(graph.nodes.size());
  int matches = 0;
  for (Node& mul : graph.nodes) {
    const int operand = mul.op == OpKind::kMul ? silu_operand(graph, uses, mul) : -1;
    if (operand < 0) continue;
    const ValueId activated = mul.inputs[static_cast<size_t>(operand)];
    const ValueId up = mul.inputs[static_cast<size_t>(1 - operand)];
    const auto silu = static_cast<size_t>(uses.producer[static_cast<size_t>(activated)]);
    mul.op = OpKind::kSiluMul;
    mul.inputs = {graph.nodes[silu].inputs[0], up};
    dead[silu] = true;
    ++matches;
  }
  erase_nodes(graph.nodes, dead);
  return matches;
}

}  // namespace latent::graph
