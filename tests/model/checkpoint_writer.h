// SPDX-License-Identifier: Apache-2.0
// Makes model folders out of nothing: a tiny config, tensors drawn from a seed, and ways to spoil them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "model/config.h"
#include "tensor/tensor.h"
#include "testing/random.h"

namespace latent::testing {

// A DeepSeek-V3 config of 3 layers (one dense) and odd widths, with `patch` (a JSON object) laid over it;
// null removes a key.
std::string tiny_config(const std::string& patch = "{}");
// An fp8 one: 128 x 128 blocks, widths that are no multiples of it.
std::string tiny_fp8_config(const std::string& patch = "{}");

class TinyCheckpoint {
 public:
  explicit TinyCheckpoint(const std::string& config_json, DType dtype = DType::kF32,
                          DType scale_dtype = DType::kF32);

  const model::ModelConfig& config() const { return config_; }
  // By checkpoint name; add, replace and erase at will before writing.
  std::map<std::string, Tensor>& tensors() { return tensors_; }
  Tensor& tensor(const std::string& name) { return tensors_.at(name); }
  void add(const std::string& name, DType dtype, const Shape& shape);
  // Renames every tensor by taking a leading "model." off.
  void strip_prefix();
  // One gate_up_proj and one down_proj for all experts of each MoE layer.
  void fuse_experts();

  // config.json and model.safetensors.
  void write(const std::filesystem::path& folder) const;

 private:
  std::string config_json_;
  model::ModelConfig config_;
  Random random_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace latent::testing
