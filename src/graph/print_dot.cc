// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "graph/print.h"
#include "graph/rewrite.h"

namespace latent::graph {

std::string print_dot(const Graph& graph) {
  const Uses uses = find_uses(graph);
  std::string text =
      fmt::format("digraph \"{}\" {{\n  node [shape=box, fontname=\"sans-serif\"];\n", graph.name);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    text += fmt::format("  n{} [label=\"{}\\n{}\"];\n", i, describe(node), to_string(node.attrs));
    for (const ValueId id : node.inputs) {
      const Value& v = graph.value(id);
      const int producer = uses.producer[static_cast<size_t>(id)];
      if (producer >= 0)
        text += fmt::format("  n{} -> n{} [label=\"{}\"];\n", producer, i, to_string(v.dims));
      else
        text += fmt::format("  \"{}\" [shape=ellipse];\n  \"{}\" -> n{};\n", v.name, v.name, i);
    }
  }
  for (const ValueId id : graph.outputs)
    text += fmt::format("  \"{}\" [shape=ellipse];\n  n{} -> \"{}\";\n", graph.value(id).name,
                        uses.producer[static_cast<size_t>(id)], graph.value(id).name);
  return text + "}\n";
}

}  // namespace latent::graph
