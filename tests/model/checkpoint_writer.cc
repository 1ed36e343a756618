// SPDX-License-Identifier: Apache-2.0
#include "model/checkpoint_writer.h"

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/math.h"
#include "io/safetensors.h"
#include "model/weight_map.h"
#include "tensor/convert.h"

namespace latent::testing {
namespace {

using Json = nlohmann::json;

std::string patched(const char* base, const std::string& patch) {
  Json json = Json::parse(base);
  json.merge_patch(Json::parse(patch));
  return json.dump();
}

bool ends_with(const std::string& name, std::string_view tail) { return name.ends_with(tail); }

// Powers of two, which every scale dtype holds exactly.
Tensor random_scales(Random& random, DType dtype, const Shape& shape) {
  Tensor scales = Tensor::create(dtype, shape).value();
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    const int64_t exponent = random.integer(-8, -4);
    if (dtype == DType::kF8E8M0) {
      scales.data<uint8_t>()[i] = static_cast<uint8_t>(127 + exponent);
      continue;
    }
    const float value = std::ldexp(1.0f, static_cast<int>(exponent));
    convert_elements(
        &value, DType::kF32,
        static_cast<std::byte*>(scales.view().raw()) + i * static_cast<int64_t>(dtype_bytes(dtype)), dtype,
        1);
  }
  return scales;
}

}  // namespace

std::string tiny_config(const std::string& patch) {
  return patched(
      R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": 50,
    "hidden_size": 24, "intermediate_size": 20, "moe_intermediate_size": 12, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 14, "kv_lora_rank": 10, "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4, "v_head_dim": 5, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "max_position_embeddings": 128, "torch_dtype": "float32",
    "rope_theta": 10000.0, "rope_scaling": null, "tie_word_embeddings": false, "num_nextn_predict_layers": 1})",
      patch);
}

std::string tiny_fp8_config(const std::string& patch) {
  return patched(tiny_config(R"({"hidden_size": 200, "intermediate_size": 300, "moe_intermediate_size": 130,
    "num_hidden_layers": 2, "kv_lora_rank": 140, "q_lora_rank": 129, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16,
    "v_head_dim": 32, "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
    "activation_scheme": "dynamic", "weight_block_size": [128, 128]}})")
                     .c_str(),
                 patch);
}

TinyCheckpoint::TinyCheckpoint(const std::string& config_json, DType dtype, DType scale_dtype)
    : config_json_(config_json), config_(model::parse_config(config_json).value()), random_(test_seed(7)) {
  const auto specs = model::weight_map(config_, {}, [](std::string_view) { return false; }).value();
  for (const model::WeightSpec& spec : specs) {
    const bool fp8 = dtype == DType::kF8E4M3 && spec.kind == model::WeightKind::kLinear &&
                     spec.name != "embed" && spec.name != "lm_head";
    DType stored = dtype == DType::kF8E4M3 && !fp8 ? DType::kBF16 : dtype;
    if (spec.kind == model::WeightKind::kBias) stored = DType::kF32;
    for (const model::WeightPart& part : spec.parts) {
      add(part.source, stored, Shape(part.source_dims));
      if (!fp8) continue;
      const Shape grid = {ceil_div<int64_t>(part.source_dims[0], 128),
                          ceil_div<int64_t>(part.source_dims[1], 128)};
      tensors_[model::scale_name(part.source)] = random_scales(random_, scale_dtype, grid);
    }
  }
}

void TinyCheckpoint::add(const std::string& name, DType dtype, const Shape& shape) {
  if (is_float(dtype) && dtype != DType::kF8E8M0) {
    const float scale =
        ends_with(name, "norm.weight") ? 1.0f : 1.0f / std::sqrt(static_cast<float>(shape[shape.rank() - 1]));
    tensors_[name] = random_.tensor(dtype, shape, Values::kNormal, dtype == DType::kF8E4M3 ? 1.0f : scale);
  } else {
    tensors_[name] = Tensor::create(dtype, shape).value();
    std::memset(tensors_[name].view().raw(), 1, static_cast<size_t>(tensors_[name].view().num_bytes()));
  }
}

void TinyCheckpoint::strip_prefix() {
  std::map<std::string, Tensor> renamed;
  for (auto& [name, tensor] : tensors_)
    renamed[name.starts_with("model.") ? name.substr(6) : name] = std::move(tensor);
  tensors_ = std::move(renamed);
}

void TinyCheckpoint::fuse_experts() {
  const int64_t experts = config_.moe.num_experts, inter = config_.moe.expert_inter, hidden = config_.hidden;
  for (int layer = 0; layer < config_.num_layers; ++layer) {
    if (!config_.layer_is_moe[static_cast<size_t>(layer)]) continue;
    const std::string base = fmt::format("model.layers.{}.mlp.experts.", layer);
    const DType dtype = tensor(base + "0.gate_proj.weight").dtype();
    Tensor gate_up = Tensor::create(dtype, {experts, 2 * inter, hidden}).value();
    Tensor down = Tensor::create(dtype, {experts, hidden, inter}).value();
    for (int64_t e = 0; e < experts; ++e) {
      const auto take = [&](const char* what, const TensorView& to) {
        const std::string name = fmt::format("{}{}.{}.weight", base, e, what);
        copy_elements(tensor(name).view(), to);
        tensors_.erase(name);
      };
      take("gate_proj", gate_up.view().at(e).slice(0, 0, inter));
      take("up_proj", gate_up.view().at(e).slice(0, inter, 2 * inter));
      take("down_proj", down.view().at(e));
    }
    tensors_[base + "gate_up_proj"] = std::move(gate_up);
    tensors_[base + "down_proj"] = std::move(down);
  }
}

void TinyCheckpoint::write(const std::filesystem::path& folder) const {
  std::ofstream(folder / "config.json") << config_json_;
  std::vector<io::NamedView> views;
  for (const auto& [name, tensor] : tensors_) views.push_back({name, tensor.view()});
  const Status written = io::write_safetensors(folder / "model.safetensors", views);
  CHECK(written.ok(), "{}", written.error().message);
}

}  // namespace latent::testing
