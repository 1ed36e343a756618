// SPDX-License-Identifier: Apache-2.0
#include "model/weight_map.h"

#include <gtest/gtest.h>

#include <set>

#include "model/checkpoint_writer.h"

namespace latent::model {
namespace {

bool nothing(std::string_view) { return false; }

ModelConfig tiny(const char* patch = "{}") { return parse_config(testing::tiny_config(patch)).value(); }

// Marks what each part writes; everything must be marked once.
void expect_filled_once(const WeightSpec& spec) {
  int64_t elements = 1;
  for (const int64_t d : spec.dims) elements *= d;
  const int64_t cols = spec.dims.back(), rows = spec.dims.size() > 1 ? spec.dims[spec.dims.size() - 2] : 1;
  std::vector<int> writes(static_cast<size_t>(elements), 0);
  for (const WeightPart& part : spec.parts) {
    ASSERT_EQ(part.rows.size(), rows) << spec.name;
    ASSERT_EQ(part.cols.size(), cols) << spec.name;
    const int64_t base = std::max<int64_t>(0, part.dest_index) * rows * cols;
    for (int64_t i = 0; i < rows * cols; ++i) ++writes[static_cast<size_t>(base + i)];
    ASSERT_LE(part.cols.end, part.source_dims.back());
  }
  for (const int w : writes) ASSERT_EQ(w, 1) << spec.name;
}

TEST(WeightMap, parts_fill_every_weight_exactly_once) {
  for (const bool fused : {false, true})
    for (int ranks : {1, 2, 4})
      for (int rank = 0; rank < ranks; ++rank) {
        const auto specs = weight_map(tiny(), {rank, ranks}, [&](std::string_view name) {
          return fused && name.ends_with("gate_up_proj");
        });
        std::set<std::string> names;
        for (const WeightSpec& spec : specs.value()) {
          EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
          expect_filled_once(spec);
        }
      }
}

TEST(WeightMap, names_weights_and_their_sources) {
  const auto specs = weight_map(tiny(), {}, nothing).value();
  const auto find = [&](const std::string& name) -> const WeightSpec& {
    for (const WeightSpec& s : specs)
      if (s.name == name) return s;
    ADD_FAILURE() << "no " << name;
    return specs[0];
  };
  EXPECT_EQ(find("embed").parts[0].source, "model.embed_tokens.weight");
  EXPECT_EQ(find("lm_head").parts[0].source, "lm_head.weight");
  EXPECT_EQ(find("layers.1.q_b").dims, (std::vector<int64_t>{40, 14}));
  EXPECT_EQ(find("layers.1.kv_a").parts[0].source, "model.layers.1.self_attn.kv_a_proj_with_mqa.weight");
  EXPECT_EQ(find("layers.0.mlp.down").dims, (std::vector<int64_t>{24, 20}));
  EXPECT_EQ(find("layers.2.experts.up").dims, (std::vector<int64_t>{8, 12, 24}));
  EXPECT_EQ(find("layers.2.experts.up").parts[3].source, "model.layers.2.mlp.experts.3.up_proj.weight");
  EXPECT_EQ(find("layers.2.router_bias").kind, WeightKind::kBias);
  EXPECT_EQ(find("layers.2.shared.gate").parts[0].source,
            "model.layers.2.mlp.shared_experts.gate_proj.weight");
}

TEST(WeightMap, optional_parts_depend_on_the_config) {
  const auto names = [](const char* patch) {
    std::set<std::string> all;
    const std::vector<WeightSpec> specs = weight_map(tiny(patch), {}, nothing).value();
    for (const WeightSpec& s : specs) all.insert(s.name);
    return all;
  };
  EXPECT_TRUE(names(R"({"q_lora_rank": null})").contains("layers.0.q") ==
              false);  // null removes the key: the default rank
  EXPECT_FALSE(names(R"({"tie_word_embeddings": true})").contains("lm_head"));
  EXPECT_FALSE(names(R"({"n_shared_experts": 0})").contains("layers.1.shared.gate"));
  EXPECT_FALSE(names(R"({"architectures": ["Mistral4ForCausalLM"]})").contains("layers.1.router_bias"));
  const ModelConfig lite = named_shape("v2-lite").value();
  const auto specs = weight_map(lite, {}, nothing).value();
  EXPECT_EQ(specs[2].name, "layers.0.q");
}

TEST(WeightMap, layer_numbers_are_read_with_and_without_prefix) {
  EXPECT_EQ(layer_of("model.layers.61.eh_proj.weight"), 61);
  EXPECT_EQ(layer_of("layers.3.enorm.weight"), 3);
  for (const char* name : {"model.norm.weight", "layers", "layers.", "layers.x.y", "layers.3",
                           "model.layers.99999999999.a", "layers.-1.a"})
    EXPECT_EQ(layer_of(name), -1) << name;
}

}  // namespace
}  // namespace latent::model
