// SPDX-License-Identifier: Apache-2.0
#include "model/build_graph.h"

#include "base/check.h"
#include "model/rope_table.h"

namespace latent::model {
namespace {

using graph::Graph;
using graph::GraphBuilder;
using graph::kNoValue;
using graph::Symbol;
using graph::ValueId;

ShardPlan whole_plan(const ModelConfig& c) {
  return {.heads = {0, c.num_heads},
          .dense_inter = {0, c.dense_inter},
          .shared_inter = {0, c.moe.shared_inter},
          .experts = {0, c.moe.num_experts}};
}

class ModelBuilder {
 public:
  ModelBuilder(std::string name, const ModelConfig& config, const BuildOptions& options,
               const ShardPlan& plan)
      : c_(config), options_(options), plan_(plan), g_(std::move(name), options.activation) {
    CHECK(options.kv.kv_rank == c_.kv_rank && options.kv.rope_dim == c_.rope_dim,
          "the cache layout is {} + {}, not {} + {}", options.kv.kv_rank, options.kv.rope_dim, c_.kv_rank,
          c_.rope_dim);
    token_ids_ = g_.input("token_ids", DType::kI32, {Symbol::kNumTokens});
    output_rows_ = g_.input("output_rows", DType::kI32, {Symbol::kNumOutputs});
  }

  Graph model() && {
    attention_inputs();
    ValueId hidden = embed();
    for (int layer = 0; layer < c_.num_layers; ++layer) hidden = decoder_layer(hidden, layer);
    begin_layer(graph::kNoLayer);
    logits(hidden);
    return std::move(g_).finish();
  }

  Graph block(int layer, bool attention) && {
    if (attention) attention_inputs();
    const ValueId x = embed();
    begin_layer(layer);
    const ValueId out =
        attention ? attention_block(norm(x, "input_norm"), layer) : mlp_block(norm(x, "post_norm"), layer);
    g_.output(g_.gather_rows(out, output_rows_));
    return std::move(g_).finish();
  }

 private:
  void attention_inputs() {
    positions_ = g_.input("positions", DType::kI32, {Symbol::kNumTokens});
    slots_ = g_.input("slots", DType::kI32, {Symbol::kNumTokens});
    q_starts_ = g_.input("q_starts", DType::kI32, {Symbol::kNumSeqsPlusOne});
    kv_lens_ = g_.input("kv_lens", DType::kI32, {Symbol::kNumSeqs});
    block_table_ = g_.input("block_table", DType::kI32, {Symbol::kNumSeqs, Symbol::kMaxPages});
    cos_sin_ = q_cos_sin_ = table(kRopeTableName, c_.rope_dim);
    if (c_.rope.query_scale_beta == 0) return;
    q_cos_sin_ = table(kQueryRopeTableName, c_.rope_dim);
    q_scale_ = table(kQueryScaleTableName, c_.nope_dim);
  }

  ValueId table(const char* name, int64_t width) {
    return g_.weight(name, {options_.max_positions, width}, {.dtype = DType::kF32});
  }

  void begin_layer(int layer) {
    g_.set_layer(layer);
    prefix_ = layer == graph::kNoLayer ? "" : fmt::format("layers.{}.", layer);
  }

  // A weight of the layer at hand.
  ValueId weight(const std::string& name, graph::Dims dims) {
    return g_.weight(prefix_ + name, std::move(dims), options_.types(prefix_ + name));
  }
  ValueId linear(ValueId x, const std::string& name, int64_t out, int64_t in) {
    return g_.linear(x, weight(name, {out, in}));
  }
  ValueId norm(ValueId x, const std::string& name) {
    return g_.rms_norm(x, weight(name, {c_.hidden}), static_cast<float>(c_.rms_eps));
  }
  ValueId latent_norm(ValueId x, const std::string& name, int width) {
    return g_.rms_norm(x, weight(name, {width}), static_cast<float>(c_.latent_norm_eps));
  }
  ValueId named(ValueId value, const std::string& name) {
    g_.rename(value, prefix_ + name);
    return value;
  }

  ValueId embed() {
    table_ = weight("embed", {c_.vocab, c_.hidden});
    return named(g_.embedding(token_ids_, table_, static_cast<float>(c_.embedding_scale)), "hidden");
  }

  ValueId decoder_layer(ValueId x, int layer) {
    begin_layer(layer);
    const auto scale = static_cast<float>(c_.residual_scale);
    const ValueId attention = attention_block(norm(x, "input_norm"), layer);
    const ValueId middle = g_.add(x, named(attention, "attention"), scale);
    const ValueId mlp = mlp_block(norm(middle, "post_norm"), layer);
    return named(g_.add(middle, named(mlp, "mlp"), scale), "out");
  }

  // [num_tokens, heads, qk_dim]
  ValueId queries(ValueId x) {
    const int64_t heads = plan_.heads.size(), rows = heads * c_.qk_dim();
    ValueId q = kNoValue;
    if (c_.q_rank > 0)
      q = linear(latent_norm(linear(x, "q_a", c_.q_rank, c_.hidden), "q_a_norm", c_.q_rank), "q_b", rows,
                 c_.q_rank);
    else
      q = linear(x, "q", rows, c_.hidden);
    return g_.reshape(q, {Symbol::kNumTokens, heads, c_.qk_dim()});
  }

  // The cache with this step's latents and rotated keys in it.
  ValueId write_cache(ValueId x, int layer) {
    const ValueId kv = linear(x, "kv_a", c_.kv_rank + c_.rope_dim, c_.hidden);
    const ValueId latent = latent_norm(g_.slice(kv, 1, 0, c_.kv_rank), "kv_a_norm", c_.kv_rank);
    const ValueId k_pe = g_.slice(kv, 1, c_.kv_rank, c_.kv_rank + c_.rope_dim);
    const ValueId one_head = g_.reshape(k_pe, {Symbol::kNumTokens, 1, c_.rope_dim});
    const ValueId rotated = g_.reshape(rope(one_head, cos_sin_), {Symbol::kNumTokens, c_.rope_dim});
    return g_.kv_cache_write(latent, rotated, slots_,
                             g_.cache(fmt::format("layers.{}.cache", layer), options_.kv));
  }

  ValueId rope(ValueId x, ValueId cos_sin) { return g_.rope(x, positions_, cos_sin, c_.rope.style); }

  // kv_b in a type that absorption and the multi-head form can use; folded to a constant at load.
  ValueId kv_b() {
    const ValueId stored = weight("kv_b", {plan_.heads.size() * (c_.nope_dim + c_.v_dim), c_.kv_rank});
    if (options_.types(prefix_ + "kv_b").dtype != DType::kF8E4M3) return stored;
    return named(g_.dequantize(stored, options_.activation), "kv_b.dequantized");
  }

  ValueId attention_block(ValueId x, int layer) {
    const ValueId q = queries(x);
    ValueId q_nope = g_.slice(q, 2, 0, c_.nope_dim);
    if (q_scale_ != kNoValue) q_nope = rope(q_nope, q_scale_);
    const ValueId q_pe = rope(g_.slice(q, 2, c_.nope_dim, c_.qk_dim()), q_cos_sin_);
    const ValueId cache = write_cache(x, layer);
    const ops::MlaAttentionAttrs attrs{.form = ops::AttentionForm::kMultiHead,
                                       .num_heads = static_cast<int>(plan_.heads.size()),
                                       .kv_rank = c_.kv_rank,
                                       .rope_dim = c_.rope_dim,
                                       .nope_dim = c_.nope_dim,
                                       .v_dim = c_.v_dim,
                                       .page_tokens = options_.kv.page_tokens,
                                       .softmax_scale = static_cast<float>(c_.softmax_scale)};
    const ValueId out = g_.mla_attention({.q_nope = q_nope,
                                          .q_pe = q_pe,
                                          .cache = cache,
                                          .q_starts = q_starts_,
                                          .kv_lens = kv_lens_,
                                          .block_table = block_table_,
                                          .kv_b = kv_b()},
                                         attrs);
    const int64_t width = plan_.heads.size() * c_.v_dim;
    return linear(g_.reshape(out, {Symbol::kNumTokens, width}), "o", c_.hidden, width);
  }

  ValueId mlp_block(ValueId x, int layer) {
    return c_.layer_is_moe[static_cast<size_t>(layer)] ? moe(x) : mlp(x, "mlp", plan_.dense_inter.size());
  }

  ValueId mlp(ValueId x, const std::string& name, int64_t inter) {
    const ValueId gate = linear(x, name + ".gate", inter, c_.hidden);
    const ValueId up = linear(x, name + ".up", inter, c_.hidden);
    return linear(g_.mul(g_.silu(gate), up), name + ".down", c_.hidden, inter);
  }

  ValueId moe(ValueId x) {
    const int64_t experts = plan_.experts.size(), inter = c_.moe.expert_inter;
    const ValueId scores = g_.linear(x, weight("router", {c_.moe.num_experts, c_.hidden}), DType::kF32);
    const ValueId bias = c_.moe.has_bias ? weight("router_bias", {c_.moe.num_experts}) : kNoValue;
    const auto [weights, ids] = g_.router(scores, bias, c_.moe.router);
    named(weights, "routing.weights");
    named(ids, "routing.ids");
    const ValueId routed = g_.moe_experts({.x = x,
                                           .weights = weights,
                                           .ids = ids,
                                           .gate = weight("experts.gate", {experts, inter, c_.hidden}),
                                           .up = weight("experts.up", {experts, inter, c_.hidden}),
                                           .down = weight("experts.down", {experts, c_.hidden, inter})},
                                          static_cast<int>(plan_.experts.begin));
    if (c_.moe.shared_inter == 0) return routed;
    return g_.add(routed, mlp(x, "shared", plan_.shared_inter.size()));
  }

  void logits(ValueId hidden) {
    ValueId x = norm(g_.gather_rows(hidden, output_rows_), "final_norm");
    if (c_.logits_scale != 1) x = g_.scale(x, static_cast<float>(c_.logits_scale));
    const ValueId head = c_.tied_embeddings ? table_ : weight("lm_head", {c_.vocab, c_.hidden});
    g_.output(named(g_.linear(x, head, DType::kF32), "logits"));
  }

  const ModelConfig& c_;
  const BuildOptions& options_;
  const ShardPlan plan_;
  GraphBuilder g_;
  std::string prefix_;  // of the layer at hand
  ValueId token_ids_ = kNoValue, output_rows_ = kNoValue, positions_ = kNoValue, slots_ = kNoValue,
          q_starts_ = kNoValue;
  ValueId kv_lens_ = kNoValue, block_table_ = kNoValue, cos_sin_ = kNoValue, q_cos_sin_ = kNoValue,
          q_scale_ = kNoValue, table_ = kNoValue;
};

}  // namespace

WeightTypes weight_types(const graph::WeightStore& weights) {
  return [&weights](const std::string& name) -> GraphBuilder::WeightType {
    const ops::WeightView view = weights.view(name);
    return {.dtype = view.values.dtype(), .block_rows = view.block_rows, .block_cols = view.block_cols};
  };
}

WeightTypes weight_types(const ModelConfig& config) {
  return [quant = config.quant,
          dtype = config.checkpoint_dtype](const std::string& name) -> GraphBuilder::WeightType {
    const auto ends = [&](std::string_view tail) { return name.ends_with(tail); };
    if (ends(".router_bias")) return {.dtype = DType::kF32};
    const bool whole = ends("norm") || ends(".router") || name == "embed" || name == "lm_head";
    if (quant.block_rows == 0 || whole) return {.dtype = dtype};
    return {.dtype = DType::kF8E4M3, .block_rows = quant.block_rows, .block_cols = quant.block_cols};
  };
}

ops::KvLayout kv_layout(const ModelConfig& config, DType cache_dtype, int page_tokens) {
  return {.kv_rank = config.kv_rank,
          .rope_dim = config.rope_dim,
          .page_tokens = page_tokens,
          .dtype = cache_dtype};
}

Graph build_graph(const ModelConfig& config, const BuildOptions& options) {
  return ModelBuilder(config.architecture_name, config, options, whole_plan(config)).model();
}

Graph build_attention_block(const ModelConfig& config, const BuildOptions& options, int layer,
                            const ShardPlan& plan) {
  return ModelBuilder("attention_block", config, options, plan).block(layer, true);
}

Graph build_mlp_block(const ModelConfig& config, const BuildOptions& options, int layer,
                      const ShardPlan& plan) {
  return ModelBuilder("mlp_block", config, options, plan).block(layer, false);
}

}  // namespace latent::model
