// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "io/json_text.h"
#include "model/config_defaults.h"
#include "model/config_reader.h"
#include "model/config_rope.h"
#include "model/rope_table.h"

namespace latent::model {
namespace {

constexpr int kMaxWidth = 1 << 20;
constexpr int kMaxHeadDim = 1 << 14;
constexpr int kMaxHeads = 1 << 12;
constexpr int kMaxExperts = 1 << 14;
constexpr int kMaxLayers = 1 << 10;
constexpr int kMaxVocab = 1 << 26;
constexpr int kMaxPositions = 1 << 28;
constexpr int64_t kMaxConfigBytes = 16 << 20;

// By architectures[0], else by model_type.
Result<const ConfigDefaults*> find_architecture(const ConfigReader& reader) {
  const std::vector<std::string> names = reader.texts("architectures");
  const std::string type = reader.text("model_type", "");
  if (!reader.status()) return reader.status().error();
  std::string known;
  for (const ConfigDefaults& d : config_defaults()) {
    const bool by_type = std::find(d.model_types.begin(), d.model_types.end(), type) != d.model_types.end();
    if (names.empty() ? by_type : names[0] == d.class_name) return &d;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", d.class_name);
  }
  return make_error(ErrorCode::kUnsupported,
                    "config.json: architecture '{}' is not supported (supported: {})",
                    names.empty() ? type : names[0], known);
}

void refuse(const ConfigReader& reader, const std::string& message) {
  reader.fail(ErrorCode::kUnsupported, message);
}

// Keys whose other values would need code that is not there.
void refuse_unsupported(const ConfigReader& reader) {
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (reader.boolean(key, false)) refuse(reader, fmt::format("'{}' true is not supported", key));
  const std::string act = reader.text("hidden_act", "silu");
  if (act != "silu" && act != "swish")
    refuse(reader, fmt::format("'hidden_act' '{}' is not supported (silu is)", act));
  if (reader.has("index_topk")) refuse(reader, "'index_topk' (sparse attention) is not supported");
  if (reader.has("compression_config")) refuse(reader, "'compression_config' is not supported");
}

void parse_sizes(const ConfigReader& reader, const ConfigDefaults& d, ModelConfig* c) {
  c->vocab = reader.integer("vocab_size", d.vocab, 1, kMaxVocab);
  c->hidden = reader.integer("hidden_size", d.hidden, 1, kMaxWidth);
  c->num_layers = reader.integer("num_hidden_layers", d.layers, 1, kMaxLayers);
  c->num_mtp_layers = reader.integer("num_nextn_predict_layers",
                                     reader.integer("num_mtp_layers", 0, 0, kMaxLayers), 0, kMaxLayers);
  c->num_heads = reader.integer("num_attention_heads", d.heads, 1, kMaxHeads);
  const int kv_heads = reader.integer("num_key_value_heads", c->num_heads, 1, kMaxHeads);
  if (kv_heads != c->num_heads)
    refuse(
        reader,
        fmt::format("'num_key_value_heads' {} differs from 'num_attention_heads' {}, which MLA cannot have",
                    kv_heads, c->num_heads));
  c->q_rank = reader.is_null("q_lora_rank") ? 0 : reader.integer("q_lora_rank", d.q_rank, 1, kMaxWidth);
  c->kv_rank = reader.integer("kv_lora_rank", d.kv_rank, 1, kMaxHeadDim);
  c->nope_dim = reader.integer("qk_nope_head_dim", d.nope_dim, 1, kMaxHeadDim);
  c->rope_dim = reader.integer("qk_rope_head_dim", d.rope_dim, 2, kMaxHeadDim);
  if (c->rope_dim % 2 != 0)
    reader.fail(ErrorCode::kInvalidArgument,
                fmt::format("'qk_rope_head_dim' must be even, not {}", c->rope_dim));
  const int v_default = d.v_dim != 0 ? d.v_dim : std::max(1, c->hidden / c->num_heads);
  c->v_dim = reader.integer("v_head_dim", v_default, 1, kMaxHeadDim);
  c->dense_inter = reader.integer("intermediate_size", d.dense_inter, 1, kMaxWidth);
  c->rms_eps = reader.number("rms_norm_eps", d.rms_eps, 0, 1);
  c->tied_embeddings = reader.boolean("tie_word_embeddings", d.tied);
  c->max_positions = reader.integer("max_position_embeddings", d.max_positions, 1, kMaxPositions);
}

// Which layers are MoE: mlp_layer_types, or first_k_dense_replace and moe_layer_freq.
void parse_layer_types(const ConfigReader& reader, const ConfigDefaults& d, ModelConfig* c) {
  const int first = reader.integer("first_k_dense_replace", d.first_dense, 0, kMaxLayers);
  const int frequency = reader.integer("moe_layer_freq", 1, 1, kMaxLayers);
  c->layer_is_moe.resize(static_cast<size_t>(c->num_layers));
  for (int i = 0; i < c->num_layers; ++i)
    c->layer_is_moe[static_cast<size_t>(i)] = c->moe.num_experts > 0 && i >= first && i % frequency == 0;
  if (!reader.has("mlp_layer_types")) return;
  const std::vector<std::string> types = reader.texts("mlp_layer_types");
  if (types.size() != c->layer_is_moe.size())
    return reader.fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'mlp_layer_types' has {} entries for {} layers", types.size(), c->num_layers));
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "dense" && types[i] != "sparse")
      return refuse(reader,
                    fmt::format("'mlp_layer_types' holds '{}' (dense and sparse are supported)", types[i]));
    const bool moe = types[i] == "sparse" && c->moe.num_experts > 0;
    if (reader.has("first_k_dense_replace") && moe != c->layer_is_moe[i])
      return reader.fail(
          ErrorCode::kInvalidArgument,
          fmt::format("'mlp_layer_types' and 'first_k_dense_replace' contradict each other in layer {}", i));
    c->layer_is_moe[i] = moe;
  }
}

// How the architecture scores experts; keys that say otherwise are refused by name.
void parse_router_rules(const ConfigReader& reader, Architecture architecture, ops::RouterAttrs* router) {
  const bool v2 = architecture == Architecture::kDeepseekV2;
  const bool softmax = v2 || architecture == Architecture::kMistral4;
  router->score = softmax ? ops::RouterScore::kSoftmax : ops::RouterScore::kSigmoid;
  router->group_score = v2 ? ops::GroupScore::kMax : ops::GroupScore::kTop2Sum;
  const std::string scoring = reader.text("scoring_func", softmax ? "softmax" : "sigmoid");
  if (scoring != (softmax ? "softmax" : "sigmoid"))
    refuse(reader, fmt::format("'scoring_func' '{}' is not supported for this architecture", scoring));
  const std::string method = reader.text("topk_method", v2 ? "greedy" : "noaux_tc");
  const bool known = v2 ? method == "greedy" || method == "group_limited_greedy" : method == "noaux_tc";
  if (!known)
    refuse(reader, fmt::format("'topk_method' '{}' is not supported for this architecture", method));
  if (v2 && method == "greedy") router->num_groups = router->topk_group = 1;
  // transformers' V2 router never renormalises, whatever the key says.
  if (v2 && router->norm_topk)
    log(LogLevel::kWarn, "config.json: 'norm_topk_prob' has no effect on DeepSeek-V2 and is ignored");
  if (v2) router->norm_topk = false;
}

void check_router(const ConfigReader& reader, const ops::RouterAttrs& r) {
  const auto invalid = [&](const std::string& message) { reader.fail(ErrorCode::kInvalidArgument, message); };
  if (r.top_k == 0) return invalid("'num_experts_per_tok' is missing");
  if (r.num_experts % r.num_groups != 0)
    return invalid(
        fmt::format("'n_routed_experts' {} is no multiple of 'n_group' {}", r.num_experts, r.num_groups));
  const int group = r.num_experts / r.num_groups;
  if (r.topk_group > r.num_groups)
    return invalid(fmt::format("'topk_group' {} is more than 'n_group' {}", r.topk_group, r.num_groups));
  if (r.num_groups > 1 && group < 2 && r.group_score == ops::GroupScore::kTop2Sum)
    return invalid(
        fmt::format("groups of one expert ('n_group' {}) have no two best scores to sum", r.num_groups));
  if (r.top_k > r.topk_group * group)
    return invalid(fmt::format("'num_experts_per_tok' {} is more than the {} experts of 'topk_group' groups",
                               r.top_k, r.topk_group * group));
}

void parse_moe(const ConfigReader& reader, const ConfigDefaults& d, ModelConfig* c) {
  const bool none = d.experts == 0 || reader.is_null("n_routed_experts");
  c->moe.num_experts = none ? 0 : reader.integer("n_routed_experts", d.experts, 0, kMaxExperts);
  parse_layer_types(reader, d, c);
  const bool used = std::find(c->layer_is_moe.begin(), c->layer_is_moe.end(), true) != c->layer_is_moe.end();
  if (!used) {
    c->moe = {};
    return;
  }
  ops::RouterAttrs& r = c->moe.router;
  r.num_experts = c->moe.num_experts;
  r.top_k = reader.integer("num_experts_per_tok", d.top_k, 1, kMaxExperts);
  r.num_groups = reader.is_null("n_group") ? 1 : reader.integer("n_group", d.num_groups, 1, kMaxExperts);
  r.topk_group = reader.is_null("topk_group")
                     ? r.num_groups
                     : reader.integer("topk_group", std::min(d.topk_group, r.num_groups), 1, kMaxExperts);
  r.norm_topk = reader.boolean("norm_topk_prob", d.norm_topk);
  r.routed_scale = static_cast<float>(reader.number("routed_scaling_factor", d.routed_scale, 1e-6, 1e6));
  parse_router_rules(reader, d.architecture, &r);
  check_router(reader, r);
  c->moe.has_bias =
      d.architecture == Architecture::kDeepseekV3 || d.architecture == Architecture::kGlm4MoeLite;
  c->moe.num_shared_experts =
      reader.is_null("n_shared_experts") ? 0 : reader.integer("n_shared_experts", d.shared, 0, 1024);
  c->moe.expert_inter = reader.integer("moe_intermediate_size", d.moe_inter, 1, kMaxWidth);
  c->moe.shared_inter = c->moe.num_shared_experts * c->moe.expert_inter;
}

void parse_quantization(const ConfigReader& reader, QuantConfig* quant) {
  if (!reader.has("quantization_config")) return;
  const ConfigReader q = reader.object("quantization_config");
  const std::string method = q.text("quant_method", "");
  if (method != "fp8")
    return refuse(
        reader,
        fmt::format("'quantization_config.quant_method' '{}' is not supported (fp8 in blocks is)", method));
  if (const std::string fmt_name = q.text("fmt", "e4m3"); fmt_name != "e4m3" && fmt_name != "float8_e4m3fn")
    return refuse(reader, fmt::format("'quantization_config.fmt' '{}' is not supported (e4m3 is)", fmt_name));
  if (const std::string scheme = q.text("activation_scheme", "dynamic"); scheme != "dynamic")
    return refuse(
        reader,
        fmt::format("'quantization_config.activation_scheme' '{}' is not supported (dynamic is)", scheme));
  if (!q.has("weight_block_size"))
    return refuse(reader,
                  "'quantization_config' without 'weight_block_size' (one scale a tensor) is not supported");
  const std::vector<int64_t> block = q.ids("weight_block_size");
  const bool fits = block.size() == 2 && std::all_of(block.begin(), block.end(),
                                                     [](int64_t b) { return b >= 1 && b <= kMaxWidth; });
  if (!fits)
    return reader.fail(ErrorCode::kInvalidArgument,
                       "'quantization_config.weight_block_size' must be two positive sizes");
  *quant = {.block_rows = static_cast<int>(block[0]), .block_cols = static_cast<int>(block[1])};
}

void parse_dtype(const ConfigReader& reader, ModelConfig* c) {
  const std::string name = reader.text("dtype", reader.text("torch_dtype", ""));
  if (name.empty() || name == "auto") return;
  c->dtype_stated = true;
  if (name == "float32")
    c->checkpoint_dtype = DType::kF32;
  else if (name == "float16")
    c->checkpoint_dtype = DType::kF16;
  else if (name == "bfloat16")
    c->checkpoint_dtype = DType::kBF16;
  else
    refuse(reader, fmt::format("'dtype' '{}' is not supported (float32, float16 and bfloat16 are)", name));
}

// MiniCPM3's three factors; null stands for "no scaling".
void parse_scales(const ConfigReader& reader, ModelConfig* c) {
  if (c->architecture != Architecture::kMiniCpm3) return;
  c->embedding_scale = reader.number("scale_emb", 12, 1e-6, 1e6);
  const double depth =
      reader.is_null("scale_depth") ? std::sqrt(c->num_layers) : reader.number("scale_depth", 1.4, 1e-6, 1e6);
  c->residual_scale = depth / std::sqrt(c->num_layers);
  const int base =
      reader.is_null("dim_model_base") ? c->hidden : reader.integer("dim_model_base", 256, 1, kMaxWidth);
  c->logits_scale = static_cast<double>(base) / c->hidden;
}

// Ids that the vocabulary lacks can never be met; they are dropped with a warning, not an error.
std::vector<int> ids_in_vocab(const std::vector<int64_t>& ids, const char* key, int vocab) {
  std::vector<int> kept;
  for (const int64_t id : ids) {
    if (id >= 0 && id < vocab)
      kept.push_back(static_cast<int>(id));
    else
      log(LogLevel::kWarn, "'{}' {} is outside the vocabulary of {} and is ignored", key, id, vocab);
  }
  return kept;
}

// generation_config.json wins over config.json, config.json over the class.
std::vector<int> parse_ids(const ConfigReader& reader, const ConfigReader* generation, const char* key,
                           int fallback, int vocab) {
  std::vector<int64_t> ids;
  if (generation != nullptr && generation->has(key))
    ids = generation->ids(key);
  else if (reader.has(key))
    ids = reader.ids(key);
  else if (!reader.is_null(key))
    ids = {fallback};
  return ids_in_vocab(ids, key, vocab);
}

}  // namespace

Result<ModelConfig> parse_config(std::string_view config_json, std::string_view generation_config_json) {
  Result<ConfigReader> reader = ConfigReader::parse(config_json, "config.json");
  if (!reader) return reader.error();
  std::optional<ConfigReader> generation;
  if (!generation_config_json.empty()) {
    Result<ConfigReader> parsed = ConfigReader::parse(generation_config_json, "generation_config.json");
    if (!parsed) return parsed.error();
    generation = *std::move(parsed);
  }
  Result<const ConfigDefaults*> found = find_architecture(*reader);
  if (!found) return found.error();
  const ConfigDefaults& d = **found;
  ModelConfig c;
  c.architecture = d.architecture;
  c.architecture_name = d.class_name;
  refuse_unsupported(*reader);
  parse_sizes(*reader, d, &c);
  parse_moe(*reader, d, &c);
  parse_rope(*reader, &c);
  parse_quantization(*reader, &c.quant);
  parse_dtype(*reader, &c);
  parse_scales(*reader, &c);
  const ConfigReader* g = generation ? &*generation : nullptr;
  c.bos_ids = parse_ids(*reader, g, "bos_token_id", d.bos, c.vocab);
  c.eos_ids = parse_ids(*reader, g, "eos_token_id", d.eos, c.vocab);
  if (!reader->status()) return reader->status().error();
  if (generation && !generation->status()) return generation->status().error();
  c.softmax_scale = mla_softmax_scale(c.qk_dim(), c.rope);
  return c;
}

Result<ModelConfig> load_config(const std::filesystem::path& folder) {
  Result<std::string> text = io::read_text_file(folder / "config.json", kMaxConfigBytes);
  if (!text) return text.error();
  std::string generation;
  std::error_code code;
  if (std::filesystem::exists(folder / "generation_config.json", code)) {
    Result<std::string> read = io::read_text_file(folder / "generation_config.json", kMaxConfigBytes);
    if (!read) return read.error();
    generation = *std::move(read);
  }
  Result<ModelConfig> config = parse_config(*text, generation);
  return config ? std::move(config) : Result<ModelConfig>(config.error().with_context(folder.string()));
}

}  // namespace latent::model
