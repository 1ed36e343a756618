// SPDX-License-Identifier: Apache-2.0
#include "model/build_graph.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/pipeline.h"
#include "graph/verify.h"
#include "model/checkpoint_writer.h"
#include "model/loader.h"

namespace latent::model {
namespace {

using graph::Graph;
using graph::OpKind;

BuildOptions options_for(const ModelConfig& config) {
  return {.types = weight_types(config),
          .activation = DType::kBF16,
          .kv = kv_layout(config, DType::kBF16),
          .max_positions = 100};
}

int count(const Graph& graph, OpKind op) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [&](const graph::Node& n) { return n.op == op; }));
}

const graph::Value* find(const Graph& graph, const std::string& name) {
  for (const graph::Value& v : graph.values)
    if (v.name == name) return &v;
  return nullptr;
}

TEST(BuildGraph, every_published_shape_verifies_and_takes_every_pass) {
  for (const std::string& name : shape_names()) {
    const ModelConfig config = named_shape(name).value();
    const auto moe =
        static_cast<int>(std::count(config.layer_is_moe.begin(), config.layer_is_moe.end(), true));
    for (const auto form : {ops::AttentionForm::kMultiHead, ops::AttentionForm::kAbsorbed}) {
      Graph graph = build_graph(config, options_for(config));
      ASSERT_TRUE(graph::verify(graph).ok()) << name << ": " << graph::verify(graph).error().message;
      EXPECT_EQ(count(graph, OpKind::kMlaAttention), config.num_layers);
      EXPECT_EQ(count(graph, OpKind::kMoeExperts), moe);
      EXPECT_EQ(count(graph, OpKind::kScale), config.logits_scale == 1 ? 0 : 1);
      const auto reports = graph::run_pipeline(graph, {.form = form, .disabled = {}});
      ASSERT_TRUE(reports.ok()) << name << ": " << reports.error().message;
      for (const graph::PassReport& report : *reports)
        if (report.name == "fuse_rope_cache_write") {
          EXPECT_EQ(report.matches, config.num_layers) << name;
        }
      EXPECT_EQ(count(graph, OpKind::kDequantize), 0) << name;  // folded into the prologue
    }
  }
}

TEST(BuildGraph, names_what_compare_and_trace_show) {
  const ModelConfig config = named_shape("v3").value();
  const Graph graph = build_graph(config, options_for(config));
  for (const char* name : {"hidden", "layers.0.attention", "layers.0.mlp", "layers.60.out", "layers.60.cache",
                           "layers.3.routing.ids", "layers.3.kv_b.dequantized", "logits"})
    EXPECT_NE(find(graph, name), nullptr) << name;
  EXPECT_EQ(graph.value(graph.outputs.at(0)).name, "logits");
  EXPECT_EQ(graph.value(graph.outputs.at(0)).dtype, DType::kF32);
}

TEST(BuildGraph, tied_embeddings_are_one_weight) {
  const ModelConfig config = named_shape("minicpm3").value();
  const Graph graph = build_graph(config, options_for(config));
  EXPECT_EQ(find(graph, "lm_head"), nullptr);
  EXPECT_EQ(graph.value(graph.nodes.back().inputs[1]).name, "embed");
}

TEST(BuildGraph, wants_exactly_the_weights_of_the_map_in_their_shapes) {
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    const ModelConfig config = parse_config(testing::tiny_config()).value();
    const LoadedModel model = random_weights(config, {.dtype = dtype, .max_positions = 100}).value();
    const Graph graph = build_graph(model.config, {.types = weight_types(model.weights),
                                                   .activation = model.activation,
                                                   .kv = kv_layout(config, DType::kBF16),
                                                   .max_positions = 100});
    size_t weights = 0;
    for (const graph::Value& v : graph.values) {
      if (v.kind != graph::ValueKind::kWeight) continue;
      ++weights;
      ASSERT_TRUE(model.weights.has(v.name)) << v.name;
      const ops::WeightView view = model.weights.view(v.name);
      EXPECT_EQ(view.values.dtype(), v.dtype) << v.name;
      EXPECT_EQ(view.block_rows, v.block_rows) << v.name;
      ASSERT_EQ(v.dims.size(), static_cast<size_t>(view.values.rank())) << v.name;
      for (int a = 0; a < view.values.rank(); ++a)
        EXPECT_EQ(v.dims[static_cast<size_t>(a)], graph::Dim(view.values.dim(a))) << v.name;
    }
    EXPECT_EQ(weights, model.weights.entries().size());
  }
}

// What `inspect` draws without loading has the types that a loaded checkpoint has.
TEST(BuildGraph, types_of_a_config_are_those_of_its_checkpoint) {
  const ModelConfig config = parse_config(testing::tiny_fp8_config()).value();
  const LoadedModel model = random_weights(config, {.dtype = DType::kF8E4M3, .max_positions = 100}).value();
  const WeightTypes stated = weight_types(config), stored = weight_types(model.weights);
  for (const auto& [name, entry] : model.weights.entries()) {
    if (name.starts_with("rope.")) continue;
    EXPECT_EQ(stated(name).dtype, stored(name).dtype) << name;
    EXPECT_EQ(stated(name).block_cols, stored(name).block_cols) << name;
  }
}

}  // namespace
}  // namespace latent::model
