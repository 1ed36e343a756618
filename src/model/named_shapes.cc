// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "model/config.h"

namespace latent::model {
namespace {

struct NamedShape {
  const char* name;
  const char* config;  // what the published config.json says
};

constexpr NamedShape kShapes[] = {
    {"v2-lite", R"({"architectures": ["DeepseekV2ForCausalLM"], "vocab_size": 102400, "hidden_size": 2048,
      "intermediate_size": 10944, "moe_intermediate_size": 1408, "num_hidden_layers": 27, "num_attention_heads": 16,
      "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "n_group": 1, "topk_group": 1,
      "topk_method": "greedy", "scoring_func": "softmax", "norm_topk_prob": false, "routed_scaling_factor": 1.0,
      "first_k_dense_replace": 1, "moe_layer_freq": 1, "max_position_embeddings": 163840, "rope_theta": 10000,
      "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
        "beta_slow": 1, "mscale": 0.707, "mscale_all_dim": 0.707},
      "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16", "bos_token_id": 100000, "eos_token_id": 100001})"},
    {"v3", R"({"architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 129280, "hidden_size": 7168,
      "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
      "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4,
      "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": true, "routed_scaling_factor": 2.5,
      "first_k_dense_replace": 3, "moe_layer_freq": 1, "num_nextn_predict_layers": 1,
      "max_position_embeddings": 163840, "rope_theta": 10000,
      "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32,
        "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
      "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
        "weight_block_size": [128, 128]},
      "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1})"},
    {"kimi-k2", R"({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "vocab_size": 163840,
      "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
      "num_attention_heads": 64, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
      "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 384, "n_shared_experts": 1,
      "num_experts_per_tok": 8, "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
      "norm_topk_prob": true, "routed_scaling_factor": 2.827, "first_k_dense_replace": 1, "moe_layer_freq": 1,
      "num_nextn_predict_layers": 0, "max_position_embeddings": 131072, "rope_theta": 50000,
      "rope_scaling": {"type": "yarn", "factor": 32, "original_max_position_embeddings": 4096, "beta_fast": 1,
        "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
      "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
        "weight_block_size": [128, 128]},
      "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16", "bos_token_id": 163584, "eos_token_id": 163585})"},
    {"glm-4.7-flash",
     R"({"architectures": ["Glm4MoeLiteForCausalLM"], "vocab_size": 154880, "hidden_size": 2048,
      "intermediate_size": 10240, "moe_intermediate_size": 1536, "num_hidden_layers": 47, "num_attention_heads": 20,
      "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
      "n_routed_experts": 64, "n_shared_experts": 1, "num_experts_per_tok": 4, "n_group": 1, "topk_group": 1,
      "topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 1.8, "first_k_dense_replace": 1,
      "num_nextn_predict_layers": 1, "max_position_embeddings": 202752, "rope_theta": 1000000, "rope_scaling": null,
      "partial_rotary_factor": 1.0, "rms_norm_eps": 1e-5, "dtype": "bfloat16",
      "eos_token_id": [154820, 154827, 154829]})"},
    {"minicpm3", R"({"architectures": ["MiniCPM3ForCausalLM"], "vocab_size": 73448, "hidden_size": 2560,
      "intermediate_size": 6400, "num_hidden_layers": 62, "num_attention_heads": 40, "q_lora_rank": 768,
      "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "scale_emb": 12,
      "scale_depth": 1.4, "dim_model_base": 256, "max_position_embeddings": 32768, "rope_theta": 10000,
      "rope_scaling": {"type": "longrope", "original_max_position_embeddings": 32768,
        "short_factor": [1.0591234137867171, 1.1241891283591912, 1.2596935748670968, 1.5380380402321725,
          2.093982484148734, 3.1446935121267696, 4.937952647693647, 7.524541999994549, 10.475458000005451,
          13.062047352306353, 14.85530648787323, 15.906017515851266, 16.461961959767827, 16.740306425132907,
          16.87581087164081, 16.940876586213285],
        "long_factor": [1.0591234137867171, 1.1241891283591912, 1.2596935748670968, 1.5380380402321725,
          2.093982484148734, 3.1446935121267696, 4.937952647693647, 7.524541999994549, 10.475458000005451,
          13.062047352306353, 14.85530648787323, 15.906017515851266, 16.461961959767827, 16.740306425132907,
          16.87581087164081, 16.940876586213285]},
      "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": [2, 73440]})"},
};

}  // namespace

Result<ModelConfig> named_shape(std::string_view name) {
  std::string known;
  for (const NamedShape& shape : kShapes) {
    if (shape.name == name) return parse_config(shape.config);
    known += fmt::format("{}{}", known.empty() ? "" : ", ", shape.name);
  }
  return make_error(ErrorCode::kInvalidArgument, "no shape is named '{}' (there are: {})", name, known);
}

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const NamedShape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

}  // namespace latent::model
