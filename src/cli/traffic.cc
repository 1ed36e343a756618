// SPDX-License-Identifier: Apache-2.0
#include "cli/traffic.h"

#include <algorithm>
#include <set>

#include "cli/summary.h"

namespace latent::cli {
namespace {

using graph::Graph;
using graph::Node;
using graph::OpKind;
using graph::Value;
using graph::ValueId;

// Whether the value's memory is in the store: a weight of the model, or one that folding has added.
bool is_stored(const Graph& graph, ValueId id, const graph::WeightStore& weights) {
  return weights.has(graph.value(graph.root(id)).name);
}

int64_t row_bytes(const Value& value) {
  return value.dims.empty() ? 0 : constant_bytes(value) / std::max<int64_t>(value.dims[0].extent, 1);
}

// What the node reads of the stored value for one row.
int64_t read_bytes(const Graph& graph, const Node& node, const Value& value) {
  switch (node.op) {
    case OpKind::kEmbedding:
    case OpKind::kRope:
    case OpKind::kRopeKvCacheWrite:
      return row_bytes(value);
    case OpKind::kMoeExperts: {
      const int64_t top_k = graph.value(node.inputs[1]).dims.back().extent;
      return row_bytes(value) * std::min(top_k, value.dims[0].extent);
    }
    default:
      return constant_bytes(value);
  }
}

}  // namespace

int64_t decode_weight_bytes(const Graph& graph, const graph::WeightStore& weights) {
  int64_t bytes = 0;
  for (const Node& node : graph.nodes) {
    if (graph::is_view(node.op)) continue;
    for (const ValueId id : node.inputs)
      if (is_stored(graph, id, weights)) bytes += read_bytes(graph, node, graph.value(id));
  }
  return bytes;
}

std::vector<ByteRegion> weight_regions(const Graph& graph, const graph::WeightStore& weights) {
  std::set<std::string> names;
  for (const Node& node : graph.nodes)
    for (const ValueId id : node.inputs)
      if (node.op != OpKind::kEmbedding && is_stored(graph, id, weights))
        names.insert(graph.value(graph.root(id)).name);
  std::vector<ByteRegion> regions;
  for (const std::string& name : names) {
    const TensorView values = weights.view(name).values;
    regions.push_back({static_cast<const std::byte*>(values.raw()), static_cast<size_t>(values.num_bytes())});
  }
  return regions;
}

}  // namespace latent::cli
