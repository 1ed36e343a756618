// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "model/config.h"

namespace latent::model {

// What transformers' config classes take for a key that is absent. 0 in q_rank: None.
struct ConfigDefaults {
  Architecture architecture;
  const char* class_name;
  std::vector<std::string> model_types;
  int vocab, hidden, dense_inter, moe_inter, layers, heads;
  int q_rank, kv_rank, nope_dim, rope_dim, v_dim;
  int experts, shared, top_k, num_groups, topk_group, first_dense;
  bool norm_topk;
  double routed_scale, rms_eps;
  int max_positions, bos, eos;
  bool tied;
};

// One entry an architecture.
const std::vector<ConfigDefaults>& config_defaults();

}  // namespace latent::model
