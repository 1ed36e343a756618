// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include <gtest/gtest.h>

#include "model/checkpoint_writer.h"
#include "model/loader.h"
#include "model/rope_table.h"

namespace latent::model {
namespace {

using testing::tiny_config;

ModelConfig parsed(const std::string& text) {
  Result<ModelConfig> config = parse_config(text);
  EXPECT_TRUE(config.ok()) << (config.ok() ? "" : config.error().message);
  return config.ok() ? *std::move(config) : ModelConfig();
}

std::string refusal(const std::string& text) {
  const Result<ModelConfig> config = parse_config(text);
  return config.ok() ? "accepted" : config.error().message;
}

#define EXPECT_REFUSED(text, phrase) EXPECT_NE(refusal(text).find(phrase), std::string::npos) << refusal(text)

// contract: C10
// C1, C3: (config -> softmax scale over (nope + rope)^-0.5, factor of cos and sin).
TEST(Config, golden_softmax_and_rope_factors) {
  struct Case {
    const char* shape;
    double softmax_scale, multiplier, cos_factor;
  };
  for (const Case& c : {Case{"v2-lite", 0.1147214, 1.5896262, 1}, Case{"v3", 0.1352338, 1.8738542, 1},
                        Case{"kimi-k2", 0.1308608, 1.8132604, 1}, Case{"glm-4.7-flash", 1.0 / 16, 1, 1},
                        Case{"minicpm3", 0.1020621, 1, 1}}) {
    const ModelConfig config = named_shape(c.shape).value();
    EXPECT_NEAR(config.softmax_scale, c.softmax_scale, 1e-7) << c.shape;
    EXPECT_NEAR(config.softmax_scale * std::sqrt(config.qk_dim()), c.multiplier, 1e-6) << c.shape;
    EXPECT_NEAR(rope_attention_factor(config.rope), c.cos_factor, 1e-12) << c.shape;
  }
}

TEST(Config, yarn_scales_nothing_without_its_factor) {
  const auto scale = [](const std::string& yarn) {
    const ModelConfig c = parsed(tiny_config(
        R"({"rope_scaling": {"type": "yarn", "original_max_position_embeddings": 16, )" + yarn + "}}"));
    return c.softmax_scale * std::sqrt(c.qk_dim());
  };
  EXPECT_DOUBLE_EQ(scale(R"("factor": 1.0, "mscale_all_dim": 1.0)"), 1);
  EXPECT_DOUBLE_EQ(scale(R"("factor": 40, "mscale_all_dim": 0)"), 1);
  EXPECT_DOUBLE_EQ(scale(R"("factor": 40)"), 1);
  EXPECT_NEAR(scale(R"("factor": 40, "mscale_all_dim": 1.0)"), 1.8738542, 1e-6);
  EXPECT_DOUBLE_EQ(parsed(tiny_config()).softmax_scale, 1 / std::sqrt(10));
}

TEST(Config, published_shapes_have_their_published_sizes) {
  const ModelConfig v3 = named_shape("v3").value();
  EXPECT_EQ(std::tuple(v3.vocab, v3.hidden, v3.num_layers, v3.num_heads, v3.q_rank, v3.kv_rank),
            std::tuple(129280, 7168, 61, 128, 1536, 512));
  EXPECT_EQ(
      std::tuple(v3.moe.num_experts, v3.moe.router.top_k, v3.moe.router.num_groups, v3.moe.router.topk_group),
      std::tuple(256, 8, 8, 4));
  EXPECT_TRUE(v3.moe.has_bias);
  EXPECT_EQ(std::count(v3.layer_is_moe.begin(), v3.layer_is_moe.end(), true), 58);
  EXPECT_EQ(v3.quant.block_rows, 128);
  const ModelConfig lite = named_shape("v2-lite").value();
  EXPECT_EQ(std::tuple(lite.q_rank, lite.moe.shared_inter, lite.moe.router.score),
            std::tuple(0, 2816, ops::RouterScore::kSoftmax));
  const ModelConfig glm = named_shape("glm-4.7-flash").value();
  EXPECT_EQ(std::tuple(glm.num_heads, glm.nope_dim, glm.v_dim, glm.eos_ids.size()),
            std::tuple(20, 192, 256, 3u));
  const ModelConfig mini = named_shape("minicpm3").value();
  EXPECT_EQ(std::tuple(mini.v_dim, mini.moe.num_experts, mini.tied_embeddings, mini.rope.style),
            std::tuple(64, 0, true, ops::RopeStyle::kHalves));
  EXPECT_DOUBLE_EQ(mini.embedding_scale, 12);
  EXPECT_DOUBLE_EQ(mini.residual_scale, 1.4 / std::sqrt(62));
  EXPECT_DOUBLE_EQ(mini.logits_scale, 0.1);
  EXPECT_EQ(shape_names().size(), 5u);
  EXPECT_NE(named_shape("v9").error().message.find("kimi-k2"), std::string::npos);
}

TEST(Config, missing_keys_take_the_class_defaults) {
  const ModelConfig v3 = parsed(R"({"architectures": ["DeepseekV3ForCausalLM"]})");
  EXPECT_EQ(std::tuple(v3.hidden, v3.num_layers, v3.moe.num_experts, v3.max_positions),
            std::tuple(7168, 61, 256, 4096));
  EXPECT_EQ(v3.moe.router.norm_topk, true);
  EXPECT_FLOAT_EQ(v3.moe.router.routed_scale, 2.5f);
  EXPECT_EQ(v3.rope.type, RopeConfig::Type::kDefault);
  EXPECT_EQ(v3.bos_ids, std::vector<int>{0});
  const ModelConfig glm = parsed(R"({"model_type": "glm4_moe_lite"})");
  EXPECT_EQ(std::tuple(glm.nope_dim, glm.moe.router.top_k, glm.rms_eps), std::tuple(192, 4, 1e-5));
  EXPECT_EQ(std::count(glm.layer_is_moe.begin(), glm.layer_is_moe.end(), false), 1);
  EXPECT_EQ(parsed(R"({"model_type": "minicpm3"})").v_dim, 64);
  const ModelConfig mistral = parsed(R"({"model_type": "mistral4"})");
  EXPECT_EQ(std::tuple(mistral.max_positions, mistral.rope.factor, mistral.rope.query_scale_beta),
            std::tuple(1048576, 128.0, 0.1));
  EXPECT_REFUSED(R"({"model_type": "deepseek_v2"})", "'num_experts_per_tok' is missing");
}

TEST(Config, old_and_new_spellings_are_equal) {
  const std::string yarn =
      R"("factor": 4, "original_max_position_embeddings": 16, "mscale": 0.5, "mscale_all_dim": 0.7)";
  const ModelConfig old =
      parsed(tiny_config(R"({"rope_theta": 5000, "rope_scaling": {"type": "yarn", )" + yarn + "}}"));
  for (
      const std::string& patch :
      {R"({"rope_theta": null, "rope_parameters": {"rope_type": "yarn", "rope_theta": 5000, )" + yarn + "}}",
       R"({"rope_theta": 5000, "rope_parameters": {"full_attention": {"rope_type": "yarn", )" + yarn + "}}}",
       R"({"first_k_dense_replace": null, "mlp_layer_types": ["dense", "sparse", "sparse"], "rope_theta": 5000,
            "dtype": "float32", "torch_dtype": null, "rope_scaling": {"rope_type": "yarn", )" +
           yarn + "}}"}) {
    const ModelConfig now = parsed(tiny_config(patch));
    EXPECT_EQ(now.rope.type, RopeConfig::Type::kYarn);
    EXPECT_EQ(rope_frequencies(now, 100), rope_frequencies(old, 100));
    EXPECT_EQ(rope_attention_factor(now.rope), rope_attention_factor(old.rope));
    EXPECT_EQ(now.softmax_scale, old.softmax_scale);
    EXPECT_EQ(now.layer_is_moe, old.layer_is_moe);
    EXPECT_EQ(now.checkpoint_dtype, old.checkpoint_dtype);
  }
}

// contract: C14
// C7
TEST(Config, refuses_odd_rope_widths_by_name) {
  for (int width = 1; width <= 8; ++width) {
    const std::string text = tiny_config(R"({"qk_rope_head_dim": )" + std::to_string(width) + "}");
    if (width % 2 == 0)
      EXPECT_EQ(refusal(text), "accepted");
    else
      EXPECT_REFUSED(text, "'qk_rope_head_dim'");
  }
}

// contract: C14
TEST(Config, refuses_what_it_cannot_run_by_name) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"architectures": ["LlamaForCausalLM"]})",
       "'LlamaForCausalLM' is not supported (supported: DeepseekV2"},
      {R"({"architectures": ["DeepseekV32ForCausalLM"]})", "DeepseekV32ForCausalLM"},
      {R"({"index_topk": 2048})", "'index_topk'"},
      {R"({"attention_bias": true})", "'attention_bias'"},
      {R"({"mlp_bias": true})", "'mlp_bias'"},
      {R"({"hidden_act": "gelu"})", "'gelu'"},
      {R"({"scoring_func": "softmax"})", "'scoring_func' 'softmax'"},
      {R"({"topk_method": "greedy"})", "'topk_method' 'greedy'"},
      {R"({"rope_scaling": {"type": "dynamic", "factor": 2}})", "rope type 'dynamic'"},
      {R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1], "long_factor": [1]}})",
       "'long_factor' of longrope must hold"},
      {R"({"partial_rotary_factor": 0.5})", "'partial_rotary_factor' 0.5"},
      {R"({"num_key_value_heads": 1})", "'num_key_value_heads' 1"},
      {R"({"torch_dtype": "float64"})", "'float64'"},
      {R"({"mlp_layer_types": ["dense", "dense", "sparse"]})", "contradict each other in layer 1"},
      {R"({"mlp_layer_types": ["dense"]})", "1 entries for 3 layers"},
      {R"({"n_group": 3})", "no multiple of 'n_group' 3"},
      {R"({"n_group": 8, "topk_group": 4})", "no two best scores"},
      {R"({"topk_group": 3})", "'topk_group' 3"},
      {R"({"num_experts_per_tok": 5})", "more than the 4 experts"},
      {R"({"quantization_config": {"quant_method": "awq"}})", "'awq'"},
      {R"({"quantization_config": {"quant_method": "gptq"}})", "'gptq'"},
      {R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}})", "'modelopt'"},
      {R"({"quantization_config": {"quant_method": "fp8"}})", "'weight_block_size'"},
      {R"({"quantization_config": {"quant_method": "fp8", "fmt": "e5m2", "weight_block_size": [128, 128]}})",
       "'e5m2'"},
      {R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 0]}})",
       "two positive sizes"},
      {R"({"quantization_config": {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": [1, 1]}})",
       "'static'"},
  };
  for (const auto& [patch, phrase] : cases) EXPECT_REFUSED(tiny_config(patch), phrase) << patch;
  EXPECT_REFUSED(tiny_config(R"({"architectures": ["DeepseekV2ForCausalLM"], "topk_method": "noaux_tc"})"),
                 "'noaux_tc'");
}

// contract: C15
TEST(Config, names_keys_of_the_wrong_type_or_range) {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers",
        "num_attention_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
        "v_head_dim", "num_experts_per_tok", "n_group", "topk_group", "max_position_embeddings"})
    for (const char* value : {"0", "-1", "\"8\"", "8.5", "[8]", "true", "99999999999", "1e30", "{}"})
      EXPECT_REFUSED(tiny_config(std::string("{\"") + key + "\": " + value + "}"),
                     std::string("'") + key + "' must be")
          << value;
  for (const char* key : {"rms_norm_eps", "rope_theta", "routed_scaling_factor"})
    for (const char* value : {"-1", "\"8\"", "[8]", "1e40"})
      EXPECT_REFUSED(tiny_config(std::string("{\"") + key + "\": " + value + "}"),
                     std::string("'") + key + "' must be")
          << value;
  EXPECT_REFUSED(tiny_config(R"({"norm_topk_prob": 1})"), "'norm_topk_prob' must be true or false");
  EXPECT_REFUSED(tiny_config(R"({"architectures": "DeepseekV3ForCausalLM"})"), "'architectures' must be");
  EXPECT_REFUSED(tiny_config(R"({"rope_scaling": 4})"), "'rope_scaling' must be an object");
  EXPECT_REFUSED(tiny_config(R"({"rope_scaling": {"type": "yarn", "factor": "4"}})"),
                 "'rope_scaling.factor' must be");
  EXPECT_REFUSED(tiny_config(R"({"eos_token_id": "x"})"), "'eos_token_id' must be");
}

TEST(Config, refuses_what_is_no_json_object) {
  EXPECT_REFUSED("", "config.json");
  EXPECT_REFUSED("[]", "not a JSON object");
  EXPECT_REFUSED("{}", "architecture ''");
  EXPECT_REFUSED(R"({"a": 1, "a": 2})", "'a' appears twice");
  const std::string whole = tiny_config();
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(refusal(whole.substr(0, size)), "accepted") << size;
}

TEST(Config, moe_layers_follow_first_dense_and_frequency) {
  const auto layers = [](const char* patch) { return parsed(tiny_config(patch)).layer_is_moe; };
  EXPECT_EQ(layers(R"({"first_k_dense_replace": 0})"), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(layers(R"({"first_k_dense_replace": 0, "moe_layer_freq": 2})"),
            (std::vector<bool>{true, false, true}));
  EXPECT_EQ(layers(R"({"first_k_dense_replace": 3})"), (std::vector<bool>{false, false, false}));
  EXPECT_EQ(parsed(R"({"model_type": "deepseek_v3", "n_routed_experts": null})").moe.num_experts, 0);
}

TEST(Config, generation_config_decides_the_end) {
  const ModelConfig c = parse_config(tiny_config(R"({"eos_token_id": 3})"),
                                     R"({"eos_token_id": [4, 5, 99999], "bos_token_id": null})")
                            .value();
  EXPECT_EQ(c.eos_ids, (std::vector<int>{4, 5}));  // 99999 is outside the vocabulary
  EXPECT_EQ(c.bos_ids, (std::vector<int>{0}));
  EXPECT_EQ(parsed(tiny_config(R"({"eos_token_id": 3})")).eos_ids, std::vector<int>{3});
  EXPECT_FALSE(parse_config(tiny_config(), "{").ok());
}

TEST(Config, v2_never_renormalises) {
  const ModelConfig c =
      parsed(tiny_config(R"({"architectures": ["DeepseekV2ForCausalLM"], "norm_topk_prob": true})"));
  EXPECT_FALSE(c.moe.router.norm_topk);
  EXPECT_EQ(c.moe.router.num_groups, 1);  // greedy looks at no groups
  EXPECT_FALSE(c.moe.has_bias);
}

TEST(Config, longrope_bounds_the_default_context) {
  const ModelConfig c = parsed(
      tiny_config(R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1], "long_factor": [2, 2],
      "original_max_position_embeddings": 32}})"));
  EXPECT_EQ(default_context(c), 32);
  EXPECT_EQ(served_context(c, 100).value(), 100);
  EXPECT_FALSE(served_context(c, 129).ok());
  EXPECT_NEAR(rope_attention_factor(c.rope), std::sqrt(1 + std::log(4.0) / std::log(32.0)), 1e-12);
}

}  // namespace
}  // namespace latent::model
