// SPDX-License-Identifier: Apache-2.0
// ModelConfig: a checkpoint's config.json, parsed. The one owner of every constant that a kernel is given
// (contract C10); kernels see numbers, never this struct.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/moe.h"
#include "ops/rope.h"
#include "tensor/dtype.h"

namespace latent::model {

enum class Architecture {
  kDeepseekV2,  // also V2-Lite
  kDeepseekV3,  // also R1, Kimi-K2, Moonlight
  kGlm4MoeLite,
  kMiniCpm3,
  kMistral4,
};

// How positions become angles. Formulas: shared with transformers' modeling_rope_utils (default, yarn,
// longrope).
struct RopeConfig {
  enum class Type { kDefault, kYarn, kLongRope };
  Type type = Type::kDefault;
  ops::RopeStyle style = ops::RopeStyle::kInterleaved;
  double theta = 10000.0;
  double factor = 1.0;  // yarn, longrope: the file's, or max_positions / original_max_positions
  int original_max_positions = 0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;         // yarn: round the ramp's ends to whole dimensions
  double mscale = 0.0;          // 0: absent
  double mscale_all_dim = 0.0;  // 0: absent
  std::optional<double> attention_factor;
  // Mistral 4: queries are multiplied by 1 + beta ln(1 + floor(position / original_max_positions)). 0:
  // absent.
  double query_scale_beta = 0;
  std::vector<double> short_factors;  // longrope, rope_dim / 2 each
  std::vector<double> long_factors;
};

struct MoeConfig {
  int num_experts = 0;  // 0: every layer is dense
  int num_shared_experts = 0;
  int expert_inter = 0;
  int shared_inter = 0;   // of all shared experts together
  bool has_bias = false;  // e_score_correction_bias
  ops::RouterAttrs router;
};

// Storage of quantised linear weights in the checkpoint.
struct QuantConfig {
  int block_rows = 0;  // 0: not quantised
  int block_cols = 0;
};

struct ModelConfig {
  Architecture architecture = Architecture::kDeepseekV3;
  std::string architecture_name;  // as the file says it
  int vocab = 0;
  int hidden = 0;
  int num_layers = 0;
  int num_mtp_layers = 0;  // announced; their tensors, if any, are skipped
  int num_heads = 0;
  int q_rank = 0;  // 0: a single q_proj
  int kv_rank = 0;
  int nope_dim = 0;
  int rope_dim = 0;
  int v_dim = 0;
  int dense_inter = 0;
  std::vector<bool> layer_is_moe;  // [num_layers]
  MoeConfig moe;
  RopeConfig rope;
  QuantConfig quant;
  double rms_eps = 1e-6;
  double latent_norm_eps = 1e-6;  // of q_a_norm and kv_a_norm: no config key, transformers fixes it
  bool tied_embeddings = false;
  int max_positions = 0;  // context limit of the checkpoint
  DType checkpoint_dtype = DType::kBF16;
  bool dtype_stated = false;  // config.json says it; else the loader takes it from the embeddings

  // Derived once, here, and read by everyone.
  double softmax_scale = 0;    // (nope_dim + rope_dim)^-0.5 times YaRN's squared factor
  double embedding_scale = 1;  // MiniCPM3: scale_emb
  double residual_scale = 1;   // MiniCPM3: scale_depth / sqrt(num_layers)
  double logits_scale = 1;     // MiniCPM3: dim_model_base / hidden

  std::vector<int> bos_ids;  // from config.json / generation_config.json
  std::vector<int> eos_ids;

  int qk_dim() const { return nope_dim + rope_dim; }
};

// Parses config.json text (and generation_config.json text, may be empty). A missing key takes the default of
// transformers' config class of that architecture; a wrong one is an error that names it.
Result<ModelConfig> parse_config(std::string_view config_json, std::string_view generation_config_json = "");
Result<ModelConfig> load_config(const std::filesystem::path& model_folder);

// A named shape for benchmarks without a checkpoint: v2-lite, v3, kimi-k2, glm-4.7-flash, minicpm3.
Result<ModelConfig> named_shape(std::string_view name);
std::vector<std::string> shape_names();

}  // namespace latent::model
