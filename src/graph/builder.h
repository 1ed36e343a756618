// SPDX-License-Identifier: Apache-2.0
// GraphBuilder: one method an operator; infers the shape of every output. Misuse is a CHECK: only our own
// model builders call it.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "graph/ir.h"

namespace latent::graph {

class GraphBuilder {
 public:
  // `activation` is the dtype of every intermediate that does not say otherwise: f32 or bf16.
  GraphBuilder(std::string name, DType activation);

  // Nodes added from here on belong to this layer.
  void set_layer(int layer) { layer_ = layer; }

  ValueId input(std::string name, DType dtype, Dims dims);
  ValueId cache(std::string name, const ops::KvLayout& layout);
  struct WeightType {
    DType dtype = DType::kBF16;
    int block_rows = 0;  // for f8_e4m3
    int block_cols = 0;
  };
  ValueId weight(std::string name, Dims dims, const WeightType& type);

  ValueId embedding(ValueId ids, ValueId table, float scale);
  ValueId rms_norm(ValueId x, ValueId weight, float eps);
  ValueId linear(ValueId x, ValueId weight) { return linear(x, weight, activation_); }
  ValueId linear(ValueId x, ValueId weight, DType out);
  ValueId head_linear(ValueId x, ValueId weight);
  ValueId rope(ValueId x, ValueId positions, ValueId cos_sin, ops::RopeStyle style);
  ValueId kv_cache_write(ValueId kv_c, ValueId k_pe, ValueId slots, ValueId cache);
  struct AttentionInputs {
    ValueId q_nope, q_pe, cache, q_starts, kv_lens, block_table;
    ValueId kv_b = kNoValue;
  };
  ValueId mla_attention(const AttentionInputs& in, const ops::MlaAttentionAttrs& attrs);
  ValueId silu(ValueId x);
  ValueId mul(ValueId a, ValueId b);
  ValueId add(ValueId a, ValueId b, float b_scale = 1.0f);
  ValueId scale(ValueId x, float factor);
  // {weights, ids}
  std::pair<ValueId, ValueId> router(ValueId logits, ValueId bias, const ops::RouterAttrs& attrs);
  struct ExpertInputs {
    ValueId x, weights, ids, gate, up, down;
  };
  ValueId moe_experts(const ExpertInputs& in, int first_expert);
  ValueId gather_rows(ValueId x, ValueId rows);
  ValueId dequantize(ValueId weight, DType out);
  ValueId transpose(ValueId x, int axis_a, int axis_b);
  ValueId reshape(ValueId x, Dims dims);
  ValueId slice(ValueId x, int axis, int64_t begin, int64_t end);

  void output(ValueId value) { graph_.outputs.push_back(value); }
  // Gives the value the name that traces, inspect and compare show; it must be unique.
  void rename(ValueId value, std::string name);
  Graph finish() && { return std::move(graph_); }

 private:
  ValueId add_value(Value value);
  ValueId emit(OpKind op, OpAttrs attrs, std::vector<ValueId> inputs, DType dtype, Dims dims);
  const Dims& dims(ValueId id) const { return graph_.value(id).dims; }

  Graph graph_;
  DType activation_;
  int layer_ = kNoLayer;
};

}  // namespace latent::graph
