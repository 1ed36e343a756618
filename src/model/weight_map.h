// SPDX-License-Identifier: Apache-2.0
// Which tensors of a checkpoint fill which weight of the graph, whole or one rank's share of it.
//
//   graph weight                  checkpoint tensor, after an optional "model."
//   embed                         embed_tokens.weight
//   layers.N.input_norm           layers.N.input_layernorm.weight
//   layers.N.q_a, q_a_norm, q_b   layers.N.self_attn.q_a_proj, q_a_layernorm, q_b_proj
//   layers.N.q                    layers.N.self_attn.q_proj (no q_lora_rank)
//   layers.N.kv_a, kv_a_norm, kv_b, o  ….kv_a_proj_with_mqa, kv_a_layernorm, kv_b_proj, o_proj
//   layers.N.post_norm            layers.N.post_attention_layernorm.weight
//   layers.N.mlp.{gate,up,down}   layers.N.mlp.{gate,up,down}_proj (dense layers)
//   layers.N.router, router_bias  layers.N.mlp.gate.weight, .e_score_correction_bias
//   layers.N.experts.{gate,up,down}  layers.N.mlp.experts.E.…_proj stacked, or the fused experts.gate_up_proj
//   layers.N.shared.{gate,up,down}   layers.N.mlp.shared_experts.…_proj
//   final_norm, lm_head           norm.weight, lm_head.weight (never prefixed; absent when tied)
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/parallel.h"  // Range
#include "base/result.h"
#include "model/config.h"

namespace latent::model {

// One rank of a tensor-parallel job: heads of q_b and kv_b by columns and of o by rows, dense and shared MLPs
// by columns then rows, routed experts by ranges; norms, latent projections, router, embeddings whole on
// every rank. The outputs of a block, summed over the ranks, are the whole block's output.
struct ShardSpec {
  int rank = 0;
  int num_ranks = 1;
};

// What a rank holds.
struct ShardPlan {
  Range heads{0, 0};
  Range dense_inter{0, 0};
  Range shared_inter{0, 0};
  Range experts{0, 0};
};

// Heads must divide evenly; MLPs and experts may be shared out unevenly, MLPs of block-quantised checkpoints
// in whole blocks. kUnsupported, with the numbers of ranks that would work, else.
Result<ShardPlan> plan_shard(const ModelConfig& config, const ShardSpec& shard);

// Numbers of ranks up to `max_ranks` that plan_shard accepts.
std::vector<int> valid_rank_counts(const ModelConfig& config, int max_ranks);

enum class WeightKind {
  kLinear,  // a matrix, or a stack of them; block-quantised where the checkpoint says so
  kRouter,  // a matrix kept in the checkpoint's precision whatever the compute type
  kNorm,    // a vector
  kBias,    // a vector that becomes f32
};

// destination[dest_index] = source[source_index][rows, cols]; an index of -1 stands for a tensor that has
// none. A vector is one row.
struct WeightPart {
  std::string source;                // full name in the checkpoint
  std::vector<int64_t> source_dims;  // as the file must have it
  int64_t source_index = -1;
  int64_t dest_index = -1;
  Range rows{0, 0};
  Range cols{0, 0};
};

struct WeightSpec {
  std::string name;           // in the graph
  std::vector<int64_t> dims;  // [width], [rows, cols] or [num_experts, rows, cols]: this rank's share
  WeightKind kind = WeightKind::kLinear;
  std::vector<WeightPart> parts;  // together they fill every element exactly once
};

// Says whether the checkpoint has a tensor of that name.
using HasTensor = std::function<bool(std::string_view)>;

// Every weight of the graph, in the order of the layers. `has` decides between spellings ("model." prefix,
// fused experts); names that the checkpoint lacks are still listed, for the loader to report.
Result<std::vector<WeightSpec>> weight_map(const ModelConfig& config, const ShardSpec& shard,
                                           const HasTensor& has);

// Name of the block scales of a quantised tensor: "….weight" -> "….weight_scale_inv".
std::string scale_name(std::string_view tensor_name);

// Decoder layer that a checkpoint tensor belongs to ("model.layers.61.eh_proj.weight" -> 61), or -1.
int layer_of(std::string_view tensor_name);

}  // namespace latent::model
