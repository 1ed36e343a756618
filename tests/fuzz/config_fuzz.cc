// SPDX-License-Identifier: Apache-2.0
// Any bytes as config.json: an error, or a config whose numbers are in their ranges and that the planners
// accept.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/rope_table.h"
#include "model/weight_map.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = latent::model::parse_config(text, text);
  if (!config) return 0;
  if (config->rope_dim % 2 != 0 || config->num_heads < 1 || !std::isfinite(config->softmax_scale))
    std::abort();
  for (const double f : latent::model::rope_frequencies(*config, 100))
    if (!std::isfinite(f)) std::abort();
  if (!std::isfinite(latent::model::rope_attention_factor(config->rope))) std::abort();
  if (!latent::model::plan_shard(*config, {}).ok()) std::abort();
  return 0;
}
