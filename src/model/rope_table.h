// SPDX-License-Identifier: Apache-2.0
// Angles of the rotary embedding, computed once in fp64.
#pragma once

#include <vector>

#include "base/result.h"
#include "graph/weights.h"
#include "model/config.h"
#include "tensor/tensor.h"

namespace latent::model {

// Names in the weight store. The last two exist only where queries are scaled by position (Mistral 4); they
// hold the scale times the angles of q_pe, and for q_nope the scale as a rotation by nothing.
inline constexpr const char* kRopeTableName = "rope.cos_sin";
inline constexpr const char* kQueryRopeTableName = "rope.q_cos_sin";
inline constexpr const char* kQueryScaleTableName = "rope.q_scale";

// Angle per position of each pair, [rope_dim / 2]: theta^(-2i / rope_dim), stretched by the rope type
//   yarn      f = 1 - ramp(low, high);  (1 - f) / factor + f, as transformers' _compute_yarn_parameters
//   longrope  1 / long_factor[i] if max_positions > original_max_positions, else 1 / short_factor[i]
std::vector<double> rope_frequencies(const ModelConfig& config, int max_positions);

// What cos and sin are multiplied by: `attention_factor` of the config, else
//   yarn      y(factor, mscale) / y(factor, mscale_all_dim) if both are set, else y(factor, 1)
//   longrope  sqrt(1 + ln(factor) / ln(original_max_positions)) for factor > 1
// with y(f, m) = 0.1 m ln(f) + 1 for f > 1, else 1.
double rope_attention_factor(const RopeConfig& rope);

// (nope_dim + rope_dim)^-0.5 * y(factor, mscale_all_dim)^2; the only place that computes it.
double mla_softmax_scale(int qk_dim, const RopeConfig& rope);

// 1 + beta ln(1 + floor(position / original_max_positions))
double query_scale(const RopeConfig& rope, int position);

// The table of ops/rope.h for positions [0, max_positions): [max_positions, rope_dim] f32.
Result<Tensor> make_rope_table(const ModelConfig& config, int max_positions);

// Adds the tables that the graph of this config reads.
Status add_rope_tables(const ModelConfig& config, int max_positions, graph::WeightStore* weights);

}  // namespace latent::model
