// SPDX-License-Identifier: Apache-2.0
#include "cli/summary.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/math.h"
#include "graph/pipeline.h"

namespace latent::cli {
namespace {

using graph::Graph;
using graph::Value;

constexpr const char* kPartNames[] = {"embedding", "attention",      "dense mlp",
                                      "router",    "routed experts", "shared experts",
                                      "norms",     "lm head",        "rope table"};

// The part that a weight of model/weight_map.h belongs to.
std::string_view part_of(std::string_view name) {
  const auto has = [&](std::string_view text) { return name.find(text) != std::string_view::npos; };
  if (name.starts_with("rope.")) return "rope table";
  if (name == "embed") return "embedding";
  if (name == "lm_head") return "lm head";
  if (has(".experts.")) return "routed experts";
  if (has(".shared.")) return "shared experts";
  if (has(".mlp.")) return "dense mlp";
  if (has(".router")) return "router";
  if (has("norm")) return "norms";
  return "attention";
}

// Bytes of folded weights that the decode graph reads.
Result<int64_t> absorbed_bytes(Graph graph) {
  const auto passes = graph::run_pipeline(graph, {.form = ops::AttentionForm::kAbsorbed, .disabled = {}});
  if (!passes) return passes.error();
  std::set<graph::ValueId> folded, read;
  for (const graph::Node& node : graph.prologue)
    for (const graph::ValueId id : node.outputs) folded.insert(graph.root(id));
  for (const graph::Node& node : graph.nodes)
    for (const graph::ValueId id : node.inputs) read.insert(graph.root(id));
  int64_t bytes = 0;
  for (const graph::ValueId id : folded)
    if (read.count(id) > 0 && graph.value(id).kind != graph::ValueKind::kWeight)
      bytes += constant_bytes(graph.value(id));
  return bytes;
}

int64_t active_elements(const model::ModelConfig& config, const Value& value, std::string_view part) {
  const int64_t elements = constant_elements(value);
  if (part == "embedding") return config.tied_embeddings ? elements : config.hidden;
  if (part == "rope table") return 0;
  if (part == "routed experts") return elements / config.moe.num_experts * config.moe.router.top_k;
  return elements;
}

}  // namespace

int64_t constant_elements(const Value& value) {
  int64_t count = 1;
  for (const graph::Dim& dim : value.dims) count *= dim.is_constant() ? dim.extent : 1;
  return count;
}

int64_t constant_bytes(const Value& value) {
  const int64_t elements = constant_elements(value);
  int64_t bytes = elements * static_cast<int64_t>(dtype_bytes(value.dtype));
  if (value.block_rows > 0 && value.dims.size() >= 2) {
    const int64_t rows = value.dims[value.dims.size() - 2].extent, cols = value.dims.back().extent;
    const int64_t blocks =
        ceil_div<int64_t>(rows, value.block_rows) * ceil_div<int64_t>(cols, value.block_cols);
    bytes += elements / std::max<int64_t>(rows * cols, 1) * blocks * static_cast<int64_t>(sizeof(float));
  }
  return bytes;
}

Result<ModelSummary> summarise(const model::ModelConfig& config, const Graph& graph) {
  ModelSummary summary;
  for (const char* name : kPartNames) summary.parts.push_back({.name = name});
  for (const Value& value : graph.values) {
    if (value.kind != graph::ValueKind::kWeight) continue;
    const std::string_view part = part_of(value.name);
    ModelPart& entry = *std::find_if(summary.parts.begin(), summary.parts.end(),
                                     [&](const ModelPart& p) { return p.name == part; });
    const bool is_parameter = part != "rope table";
    const int64_t bytes = constant_bytes(value);
    entry.bytes += bytes;
    summary.bytes += bytes;
    if (is_parameter) {
      entry.parameters += constant_elements(value);
      summary.parameters += constant_elements(value);
      const int64_t active = active_elements(config, value, part);
      summary.active_parameters += active;
      if (part != "embedding" && part != "lm head" && part != "norms") summary.matrix_parameters += active;
    }
  }
  std::erase_if(summary.parts, [](const ModelPart& part) { return part.bytes == 0; });
  summary.num_moe_layers =
      static_cast<int>(std::count(config.layer_is_moe.begin(), config.layer_is_moe.end(), true));
  const Result<int64_t> absorbed = absorbed_bytes(graph);
  if (!absorbed) return absorbed.error();
  summary.absorbed_bytes = *absorbed;
  return summary;
}

}  // namespace latent::cli
