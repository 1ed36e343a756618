// SPDX-License-Identifier: Apache-2.0
// Flags that several commands share; each means the same everywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/engine.h"

namespace CLI {
class App;
}

namespace latent::cli {

// How a model is loaded and run.
struct EngineFlags {
  std::string model;  // folder
  int threads = 0;
  bool deterministic = false;
  std::string poison = "none";
  std::string attention_backend;
  std::string kv_cache = "auto";
  std::string compute = "auto";
  int context = 0;
  int prefill_chunk = 512;
  std::vector<std::string> disable_passes;
};

// `needs_model`: the folder is a required argument; else the command adds its own way to name a model.
void add_engine_flags(CLI::App& app, EngineFlags& flags, bool needs_model = true);
Result<runtime::EngineOptions> engine_options(const EngineFlags& flags);
// "auto" is none.
std::optional<DType> compute_dtype(const EngineFlags& flags);

// How tokens are chosen. What is not given follows the model's generation_config.json.
struct SamplingFlags {
  std::optional<float> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int> top_k;
  std::optional<uint64_t> seed;
  std::vector<std::string> logit_bias;  // "ID=BIAS"
  int logprobs = -1;
  std::optional<int> max_tokens;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_ids;
  bool ignore_eos = false;
};

void add_sampling_flags(CLI::App& app, SamplingFlags& flags);
// Everything of the request but its prompt. kModelError-worthy errors come as kCorrupt.
Result<runtime::Request> make_request(const SamplingFlags& flags, const std::string& model_folder);

}  // namespace latent::cli
