// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "graph/print.h"

namespace latent::graph {
namespace {

std::string typed(const Value& v) {
  const char* poison = v.poison == PoisonPattern::kNone ? "" : to_string(v.poison);
  return fmt::format("{}: {}{}{}{}", v.name, to_string(v.dtype), to_string(v.dims),
                     *poison != 0 ? " poison=" : "", poison);
}

std::string node_line(const Graph& graph, const Node& node) {
  std::string outputs, inputs;
  for (const ValueId id : node.outputs) outputs += (outputs.empty() ? "" : ", ") + typed(graph.value(id));
  for (const ValueId id : node.inputs) inputs += (inputs.empty() ? "" : ", ") + graph.value(id).name;
  const std::string attrs = to_string(node.attrs);
  return fmt::format("  {} = {}({}){}\n", outputs, op_name(node.op), inputs,
                     attrs.empty() ? "" : " {" + attrs + "}");
}

std::string section(const Graph& graph, const std::vector<Node>& nodes, const char* title) {
  std::string text = fmt::format("{}:\n", title);
  int layer = kNoLayer;
  for (const Node& node : nodes) {
    if (node.layer != layer)
      text += node.layer == kNoLayer ? "  # end\n" : fmt::format("  # layer {}\n", node.layer);
    layer = node.layer;
    text += node_line(graph, node);
  }
  return text;
}

}  // namespace

std::string print_text(const Graph& graph) {
  std::string text = fmt::format("graph {}\n", graph.name);
  const auto list = [&](ValueKind kind, const char* title) {
    text += fmt::format("{}:\n", title);
    for (const Value& v : graph.values)
      if (v.kind == kind) text += "  " + typed(v) + "\n";
  };
  list(ValueKind::kInput, "inputs");
  list(ValueKind::kCache, "caches");
  list(ValueKind::kWeight, "weights");
  if (!graph.prologue.empty()) text += section(graph, graph.prologue, "prologue");
  text += section(graph, graph.nodes, "nodes");
  text += "outputs:\n";
  for (const ValueId id : graph.outputs) text += "  " + graph.value(id).name + "\n";
  return text;
}

}  // namespace latent::graph
