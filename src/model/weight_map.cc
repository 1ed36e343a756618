// SPDX-License-Identifier: Apache-2.0
#include "model/weight_map.h"

#include <charconv>

namespace latent::model {
namespace {

class MapBuilder {
 public:
  MapBuilder(const ModelConfig& config, const ShardPlan& plan, const HasTensor& has)
      : c_(config), plan_(plan), has_(has), prefix_(has("embed_tokens.weight") ? "" : "model.") {}

  std::vector<WeightSpec> build() {
    matrix("embed", prefix_ + "embed_tokens.weight", c_.vocab, c_.hidden);
    for (int layer = 0; layer < c_.num_layers; ++layer) {
      graph_ = fmt::format("layers.{}.", layer);
      source_ = fmt::format("{}layers.{}.", prefix_, layer);
      vector("input_norm", "input_layernorm.weight", c_.hidden);
      attention();
      vector("post_norm", "post_attention_layernorm.weight", c_.hidden);
      if (c_.layer_is_moe[static_cast<size_t>(layer)])
        moe();
      else
        mlp("mlp", "mlp", c_.dense_inter, plan_.dense_inter);
    }
    graph_ = source_ = "";
    vector("final_norm", prefix_ + "norm.weight", c_.hidden);
    if (!c_.tied_embeddings) matrix("lm_head", "lm_head.weight", c_.vocab, c_.hidden);
    return std::move(specs_);
  }

 private:
  // A matrix [rows, cols] of the checkpoint, of which this rank holds the ranges.
  void matrix(const std::string& name, const std::string& source, int64_t rows, int64_t cols, Range row_range,
              Range col_range) {
    specs_.push_back({.name = graph_ + name,
                      .dims = {row_range.size(), col_range.size()},
                      .parts = {{.source = source_ + source,
                                 .source_dims = {rows, cols},
                                 .rows = row_range,
                                 .cols = col_range}}});
  }
  void matrix(const std::string& name, const std::string& source, int64_t rows, int64_t cols) {
    matrix(name, source, rows, cols, {0, rows}, {0, cols});
  }

  void vector(const std::string& name, const std::string& source, int64_t width,
              WeightKind kind = WeightKind::kNorm) {
    specs_.push_back(
        {.name = graph_ + name,
         .dims = {width},
         .kind = kind,
         .parts = {
             {.source = source_ + source, .source_dims = {width}, .rows = {0, 1}, .cols = {0, width}}}});
  }

  // Rows (or columns) of the heads of this rank, each `width` wide.
  Range heads(int width) const { return {plan_.heads.begin * width, plan_.heads.end * width}; }

  void attention() {
    const std::string a = "self_attn.";
    const int64_t q_rows = int64_t{c_.num_heads} * c_.qk_dim();
    if (c_.q_rank > 0) {
      matrix("q_a", a + "q_a_proj.weight", c_.q_rank, c_.hidden);
      vector("q_a_norm", a + "q_a_layernorm.weight", c_.q_rank);
      matrix("q_b", a + "q_b_proj.weight", q_rows, c_.q_rank, heads(c_.qk_dim()), {0, c_.q_rank});
    } else {
      matrix("q", a + "q_proj.weight", q_rows, c_.hidden, heads(c_.qk_dim()), {0, c_.hidden});
    }
    const int kv_width = c_.nope_dim + c_.v_dim;
    matrix("kv_a", a + "kv_a_proj_with_mqa.weight", c_.kv_rank + c_.rope_dim, c_.hidden);
    vector("kv_a_norm", a + "kv_a_layernorm.weight", c_.kv_rank);
    matrix("kv_b", a + "kv_b_proj.weight", int64_t{c_.num_heads} * kv_width, c_.kv_rank, heads(kv_width),
           {0, c_.kv_rank});
    matrix("o", a + "o_proj.weight", c_.hidden, int64_t{c_.num_heads} * c_.v_dim, {0, c_.hidden},
           heads(c_.v_dim));
  }

  // gate and up by rows, down by columns.
  void mlp(const std::string& name, const std::string& source, int64_t inter, Range held) {
    matrix(name + ".gate", source + ".gate_proj.weight", inter, c_.hidden, held, {0, c_.hidden});
    matrix(name + ".up", source + ".up_proj.weight", inter, c_.hidden, held, {0, c_.hidden});
    matrix(name + ".down", source + ".down_proj.weight", c_.hidden, inter, {0, c_.hidden}, held);
  }

  void moe() {
    matrix("router", "mlp.gate.weight", c_.moe.num_experts, c_.hidden);
    specs_.back().kind = WeightKind::kRouter;
    if (c_.moe.has_bias)
      vector("router_bias", "mlp.gate.e_score_correction_bias", c_.moe.num_experts, WeightKind::kBias);
    const int64_t inter = c_.moe.expert_inter;
    if (has_(source_ + "mlp.experts.gate_up_proj")) {
      fused_experts("experts.gate", "gate_up_proj", 2 * inter, c_.hidden, {0, inter});
      fused_experts("experts.up", "gate_up_proj", 2 * inter, c_.hidden, {inter, 2 * inter});
      fused_experts("experts.down", "down_proj", c_.hidden, inter, {0, c_.hidden});
    } else {
      experts("experts.gate", "gate_proj", inter, c_.hidden);
      experts("experts.up", "up_proj", inter, c_.hidden);
      experts("experts.down", "down_proj", c_.hidden, inter);
    }
    if (c_.moe.shared_inter > 0) mlp("shared", "mlp.shared_experts", c_.moe.shared_inter, plan_.shared_inter);
  }

  // One tensor an expert.
  void experts(const std::string& name, const std::string& source, int64_t rows, int64_t cols) {
    WeightSpec spec{.name = graph_ + name, .dims = {plan_.experts.size(), rows, cols}};
    for (int64_t e = plan_.experts.begin; e < plan_.experts.end; ++e)
      spec.parts.push_back({.source = fmt::format("{}mlp.experts.{}.{}.weight", source_, e, source),
                            .source_dims = {rows, cols},
                            .dest_index = e - plan_.experts.begin,
                            .rows = {0, rows},
                            .cols = {0, cols}});
    specs_.push_back(std::move(spec));
  }

  // One tensor for all experts, as newer transformers may save them; `held` are the rows taken from each.
  void fused_experts(const std::string& name, const std::string& source, int64_t rows, int64_t cols,
                     Range held) {
    WeightSpec spec{.name = graph_ + name, .dims = {plan_.experts.size(), held.size(), cols}};
    for (int64_t e = plan_.experts.begin; e < plan_.experts.end; ++e)
      spec.parts.push_back({.source = fmt::format("{}mlp.experts.{}", source_, source),
                            .source_dims = {c_.moe.num_experts, rows, cols},
                            .source_index = e,
                            .dest_index = e - plan_.experts.begin,
                            .rows = held,
                            .cols = {0, cols}});
    specs_.push_back(std::move(spec));
  }

  const ModelConfig& c_;
  const ShardPlan& plan_;
  const HasTensor& has_;
  const std::string prefix_;
  std::string graph_, source_;  // in front of the names of the layer at hand
  std::vector<WeightSpec> specs_;
};

}  // namespace

Result<std::vector<WeightSpec>> weight_map(const ModelConfig& config, const ShardSpec& shard,
                                           const HasTensor& has) {
  Result<ShardPlan> plan = plan_shard(config, shard);
  if (!plan) return plan.error();
  return MapBuilder(config, *plan, has).build();
}

std::string scale_name(std::string_view tensor_name) { return std::string(tensor_name) + "_scale_inv"; }

int layer_of(std::string_view name) {
  if (name.starts_with("model.")) name.remove_prefix(6);
  if (!name.starts_with("layers.")) return -1;
  name.remove_prefix(7);
  int layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  const bool whole = error == std::errc() && end != name.data() + name.size() && *end == '.';
  return whole && layer >= 0 ? layer : -1;
}

}  // namespace latent::model
