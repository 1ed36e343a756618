// SPDX-License-Identifier: Apache-2.0
// From a config to the graph of one step. Attention is written in its multi-head form, with kv_b; the pass
// absorb_weights turns it into the absorbed form for decode graphs.
//
//   inputs   token_ids, positions, slots, q_starts, kv_lens, block_table, output_rows (i32)
//   caches   layers.N.cache
//   values   layers.N.attention (o_proj's output), layers.N.mlp, layers.N.out (hidden state after the layer)
//            layers.N.routing.ids, .weights; hidden (the embeddings); logits
//   weights  as in weight_map.h; tables as in rope_table.h
#pragma once

#include <functional>
#include <string>

#include "graph/builder.h"
#include "graph/weights.h"
#include "model/config.h"
#include "model/weight_map.h"

namespace latent::model {

// Storage type of a weight, by its graph name.
using WeightTypes = std::function<graph::GraphBuilder::WeightType(const std::string& name)>;

// Types of the weights in a store, which must outlive the function.
WeightTypes weight_types(const graph::WeightStore& weights);
// Types that a checkpoint of this config has if it stores all it can in its own dtype, block-quantised if it
// says so; for graphs that are only printed.
WeightTypes weight_types(const ModelConfig& config);

struct BuildOptions {
  WeightTypes types;
  DType activation = DType::kBF16;
  ops::KvLayout kv;
  int max_positions = 0;  // rows of the rope tables
};

// The cache of this model.
ops::KvLayout kv_layout(const ModelConfig& config, DType cache_dtype,
                        int page_tokens = ops::kDefaultPageTokens);

// Logits [num_outputs, vocab] f32 of the rows in output_rows.
graph::Graph build_graph(const ModelConfig& config, const BuildOptions& options);

// One block of one layer alone, for a rank of a tensor-parallel job: what it adds to the residual if the
// hidden state are the embeddings of token_ids, [num_outputs, hidden]. The outputs of all ranks sum to the
// whole block's.
graph::Graph build_attention_block(const ModelConfig& config, const BuildOptions& options, int layer,
                                   const ShardPlan& plan);
graph::Graph build_mlp_block(const ModelConfig& config, const BuildOptions& options, int layer,
                             const ShardPlan& plan);

}  // namespace latent::model
