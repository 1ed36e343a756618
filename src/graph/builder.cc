// SPDX-License-Identifier: Apache-2.0
#include "graph/builder.h"

#include "base/check.h"
#include "graph/infer.h"

namespace latent::graph {

GraphBuilder::GraphBuilder(std::string name, DType activation) : activation_(activation) {
  graph_.name = std::move(name);
}

ValueId GraphBuilder::add_value(Value value) {
  const auto id = static_cast<ValueId>(graph_.values.size());
  if (value.name.empty()) value.name = fmt::format("v{}", id);
  graph_.values.push_back(std::move(value));
  return id;
}

ValueId GraphBuilder::input(std::string name, DType dtype, Dims dims) {
  return add_value(
      {.name = std::move(name), .kind = ValueKind::kInput, .dtype = dtype, .dims = std::move(dims)});
}

ValueId GraphBuilder::cache(std::string name, const ops::KvLayout& layout) {
  return add_value({.name = std::move(name),
                    .kind = ValueKind::kCache,
                    .dtype = layout.dtype,
                    .dims = {Symbol::kNumPages, layout.page_tokens, layout.width()}});
}

ValueId GraphBuilder::weight(std::string name, Dims dims, const WeightType& type) {
  return add_value({.name = std::move(name),
                    .kind = ValueKind::kWeight,
                    .dtype = type.dtype,
                    .dims = std::move(dims),
                    .block_rows = type.block_rows,
                    .block_cols = type.block_cols});
}

ValueId GraphBuilder::emit(OpKind op, OpAttrs attrs, std::vector<ValueId> inputs, DType dtype,
                           Dims reshaped) {
  const bool view = is_view(op);
  const ValueId first = add_value({.dtype = dtype, .dims = std::move(reshaped)});
  if (view) graph_.value(first).alias_of = inputs[0];
  Node node{
      .op = op, .attrs = std::move(attrs), .inputs = std::move(inputs), .outputs = {first}, .layer = layer_};
  Result<std::vector<Dims>> dims = infer_dims(graph_, node);
  CHECK(dims.ok(), "{}", dims.ok() ? "" : dims.error().message);
  graph_.value(first).dims = dims->front();
  for (size_t i = 1; i < dims->size(); ++i)
    node.outputs.push_back(add_value({.dtype = dtype, .dims = (*dims)[i]}));
  graph_.nodes.push_back(std::move(node));
  return first;
}

ValueId GraphBuilder::embedding(ValueId ids, ValueId table, float scale) {
  return emit(OpKind::kEmbedding, ops::EmbeddingAttrs{scale}, {ids, table}, activation_, {});
}

ValueId GraphBuilder::rms_norm(ValueId x, ValueId weight, float eps) {
  return emit(OpKind::kRmsNorm, ops::RmsNormAttrs{eps}, {x, weight}, activation_, {});
}

ValueId GraphBuilder::linear(ValueId x, ValueId weight, DType out) {
  return emit(OpKind::kLinear, {}, {x, weight}, out, {});
}

ValueId GraphBuilder::head_linear(ValueId x, ValueId weight) {
  return emit(OpKind::kHeadLinear, {}, {x, weight}, activation_, {});
}

ValueId GraphBuilder::rope(ValueId x, ValueId positions, ValueId cos_sin, ops::RopeStyle style) {
  return emit(OpKind::kRope, ops::RopeAttrs{style}, {x, positions, cos_sin}, graph_.value(x).dtype, {});
}

ValueId GraphBuilder::kv_cache_write(ValueId kv_c, ValueId k_pe, ValueId slots, ValueId cache) {
  const ValueId out =
      emit(OpKind::kKvCacheWrite, {}, {kv_c, k_pe, slots, cache}, graph_.value(cache).dtype, {});
  graph_.value(out).alias_of = cache;
  return out;
}

ValueId GraphBuilder::mla_attention(const AttentionInputs& in, const ops::MlaAttentionAttrs& attrs) {
  std::vector<ValueId> inputs = {in.q_nope, in.q_pe, in.cache, in.q_starts, in.kv_lens, in.block_table};
  if (in.kv_b != kNoValue) inputs.push_back(in.kv_b);
  return emit(OpKind::kMlaAttention, attrs, std::move(inputs), activation_, {});
}

ValueId GraphBuilder::silu(ValueId x) { return emit(OpKind::kSilu, {}, {x}, activation_, {}); }
ValueId GraphBuilder::mul(ValueId a, ValueId b) { return emit(OpKind::kMul, {}, {a, b}, activation_, {}); }

ValueId GraphBuilder::add(ValueId a, ValueId b, float b_scale) {
  return emit(OpKind::kAdd, ops::AddAttrs{b_scale}, {a, b}, activation_, {});
}

ValueId GraphBuilder::scale(ValueId x, float factor) {
  return emit(OpKind::kScale, ops::ScaleAttrs{factor}, {x}, graph_.value(x).dtype, {});
}

std::pair<ValueId, ValueId> GraphBuilder::router(ValueId logits, ValueId bias,
                                                 const ops::RouterAttrs& attrs) {
  std::vector<ValueId> inputs = {logits};
  if (bias != kNoValue) inputs.push_back(bias);
  emit(OpKind::kRouter, attrs, std::move(inputs), DType::kF32, {});
  const std::vector<ValueId>& outputs = graph_.nodes.back().outputs;
  graph_.value(outputs[1]).dtype = DType::kI32;
  return {outputs[0], outputs[1]};
}

ValueId GraphBuilder::moe_experts(const ExpertInputs& in, int first_expert) {
  return emit(OpKind::kMoeExperts, ops::MoeExpertsAttrs{first_expert},
              {in.x, in.weights, in.ids, in.gate, in.up, in.down}, activation_, {});
}

ValueId GraphBuilder::gather_rows(ValueId x, ValueId rows) {
  return emit(OpKind::kGatherRows, {}, {x, rows}, graph_.value(x).dtype, {});
}

ValueId GraphBuilder::dequantize(ValueId weight, DType out) {
  return emit(OpKind::kDequantize, {}, {weight}, out, {});
}

ValueId GraphBuilder::transpose(ValueId x, int axis_a, int axis_b) {
  return emit(OpKind::kTranspose, ops::TransposeAttrs{axis_a, axis_b}, {x}, graph_.value(x).dtype, {});
}

ValueId GraphBuilder::reshape(ValueId x, Dims dims) {
  return emit(OpKind::kReshape, {}, {x}, graph_.value(x).dtype, std::move(dims));
}

ValueId GraphBuilder::slice(ValueId x, int axis, int64_t begin, int64_t end) {
  return emit(OpKind::kSlice, SliceAttrs{axis, begin, end}, {x}, graph_.value(x).dtype, {});
}

void GraphBuilder::rename(ValueId value, std::string name) {
  for (const Value& v : graph_.values) CHECK(v.name != name, "two values named {}", name);
  graph_.value(value).name = std::move(name);
}

}  // namespace latent::graph
