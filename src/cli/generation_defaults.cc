// SPDX-License-Identifier: Apache-2.0
#include "cli/generation_defaults.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "cli/json_file.h"

namespace latent::cli {
namespace {

void take(const nlohmann::json& config, const char* key, float& value) {
  const auto it = config.find(key);
  if (it != config.end() && it->is_number()) value = it->get<float>();
}

// A count beyond int is no limit.
void take(const nlohmann::json& config, const char* key, int& value) {
  const auto it = config.find(key);
  if (it != config.end() && it->is_number_integer())
    value = static_cast<int>(std::clamp<int64_t>(it->get<int64_t>(), INT32_MIN, INT32_MAX));
}

}  // namespace

Result<runtime::SamplingParams> generation_defaults(const std::filesystem::path& model_folder) {
  runtime::SamplingParams params;
  const std::filesystem::path path = model_folder / "generation_config.json";
  if (!std::filesystem::exists(path)) return params;
  const Result<nlohmann::json> config = read_json_file(path);
  if (!config) return config.error();
  if (!config->is_object()) return make_error(ErrorCode::kCorrupt, "{}: not a JSON object", path.string());
  take(*config, "temperature", params.temperature);
  take(*config, "top_k", params.top_k);
  take(*config, "top_p", params.top_p);
  take(*config, "min_p", params.min_p);
  take(*config, "repetition_penalty", params.repetition_penalty);
  if (const auto sample = config->find("do_sample"); sample != config->end() && *sample == false)
    params.temperature = 0;
  return params;
}

}  // namespace latent::cli
