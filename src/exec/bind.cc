// SPDX-License-Identifier: Apache-2.0
#include "exec/bind.h"

#include "base/check.h"

namespace latent::exec {
namespace {

using graph::Node;
using graph::OpKind;

// A node's operands by position.
class Operands {
 public:
  Operands(const Node& node, const ValueViews& views) : node_(node), views_(views) {}
  const ops::WeightView& weight(size_t i) const { return views_[static_cast<size_t>(node_.inputs[i])]; }
  const TensorView& in(size_t i) const { return weight(i).values; }
  const TensorView& out(size_t i = 0) const { return views_[static_cast<size_t>(node_.outputs[i])].values; }
  bool has(size_t i) const { return i < node_.inputs.size(); }

 private:
  const Node& node_;
  const ValueViews& views_;
};

ops::KvCacheWriteParams cache_write_params(const Operands& o) {
  return {.kv_c = o.in(0), .k_pe = o.in(1), .slots = o.in(2), .cache = o.in(3)};
}

ops::MlaAttentionParams attention_params(const Node& node, const Operands& o) {
  return {.q_nope = o.in(0),
          .q_pe = o.in(1),
          .cache = o.in(2),
          .batch = {.q_starts = o.in(3), .kv_lens = o.in(4), .block_table = o.in(5)},
          .kv_b = o.has(6) ? o.weight(6) : ops::WeightView(),
          .out = o.out(),
          .attrs = node.get<ops::MlaAttentionAttrs>()};
}

template <class Params>
BoundOp bound(const Node& node, const Params& params, const BindOptions& options) {
  const Status status = ops::check(params);
  CHECK(status.ok(), "{}: {}", describe(node), status.error().message);
  const auto& impl =
      options.reference_kernels ? kernels::implementations<Params>().back() : kernels::select(params);
  return Bound<Params>{params, &impl};
}

struct Runner {
  const kernels::KernelContext& context;
  void operator()(const std::monostate&) const {}
  template <class Params>
  void operator()(const Bound<Params>& b) const {
    b.impl->run(b.params, context);
  }
  void operator()(const BoundAttention& b) const { b.backend->run(b.params, *b.plan, context); }
};

struct WorkspaceAsker {
  int num_threads;
  template <class Params>
  size_t operator()(const Bound<Params>& b) const {
    return b.impl->workspace_bytes == nullptr ? 0 : b.impl->workspace_bytes(b.params, num_threads);
  }
  size_t operator()(const std::monostate&) const { return 0; }
  size_t operator()(const BoundAttention&) const { return 0; }
};

}  // namespace

BoundOp bind(const Node& n, const ValueViews& views, const BindOptions& options) {
  const Operands o(n, views);
  const auto b = [&](const auto& params) { return bound(n, params, options); };
  switch (n.op) {
    case OpKind::kEmbedding:
      return b(ops::EmbeddingParams{o.in(0), o.weight(1), o.out(), n.get<ops::EmbeddingAttrs>()});
    case OpKind::kRmsNorm:
      return b(ops::RmsNormParams{o.in(0), o.in(1), o.out(), n.get<ops::RmsNormAttrs>()});
    case OpKind::kLinear:
      return b(ops::LinearParams{o.in(0), o.weight(1), o.out()});
    case OpKind::kHeadLinear:
      return b(ops::HeadLinearParams{o.in(0), o.weight(1), o.out()});
    case OpKind::kRope:
      return b(ops::RopeParams{o.in(0), o.in(1), o.in(2), o.out(), n.get<ops::RopeAttrs>()});
    case OpKind::kKvCacheWrite:
      return b(cache_write_params(o));
    case OpKind::kRopeKvCacheWrite:
      return b(ops::RopeKvCacheWriteParams{cache_write_params(o), o.in(4), o.in(5), n.get<ops::RopeAttrs>()});
    case OpKind::kMlaAttention:
      return BoundAttention{attention_params(n, o), options.backend, options.plan};
    case OpKind::kSilu:
      return b(ops::SiluParams{o.in(0), o.out()});
    case OpKind::kMul:
      return b(ops::MulParams{o.in(0), o.in(1), o.out()});
    case OpKind::kSiluMul:
      return b(ops::SiluMulParams{o.in(0), o.in(1), o.out()});
    case OpKind::kAdd:
      return b(ops::AddParams{o.in(0), o.in(1), o.out(), n.get<ops::AddAttrs>()});
    case OpKind::kScale:
      return b(ops::ScaleParams{o.in(0), o.out(), n.get<ops::ScaleAttrs>()});
    case OpKind::kRouter:
      return b(ops::RouterParams{o.in(0), o.has(1) ? o.in(1) : TensorView(), o.out(0), o.out(1),
                                 n.get<ops::RouterAttrs>()});
    case OpKind::kMoeExperts:
      return b(ops::MoeExpertsParams{o.in(0), o.in(1), o.in(2), o.weight(3), o.weight(4), o.weight(5),
                                     o.out(), n.get<ops::MoeExpertsAttrs>()});
    case OpKind::kGatherRows:
      return b(ops::GatherRowsParams{o.in(0), o.in(1), o.out()});
    case OpKind::kDequantize:
      return b(ops::DequantizeParams{o.weight(0), o.out()});
    case OpKind::kTranspose:
      return b(ops::TransposeParams{o.in(0), o.out(), n.get<ops::TransposeAttrs>()});
    case OpKind::kReshape:
    case OpKind::kSlice:
      return std::monostate{};
  }
  CHECK(false, "{} cannot be bound", describe(n));
  return std::monostate{};
}

void run(const BoundOp& op, const kernels::KernelContext& context) { std::visit(Runner{context}, op); }

size_t workspace_bytes(const BoundOp& op, int num_threads) {
  return std::visit(WorkspaceAsker{num_threads}, op);
}

attention::MlaDesc attention_desc(const Node& node, const graph::Graph& graph) {
  attention::MlaDesc desc{.attrs = node.get<ops::MlaAttentionAttrs>(),
                          .q_dtype = graph.value(node.inputs[0]).dtype,
                          .cache_dtype = graph.value(node.inputs[2]).dtype};
  if (node.inputs.size() > 6) desc.kv_b_dtype = graph.value(node.inputs[6]).dtype;
  return desc;
}

TensorView apply_view(const Node& node, const TensorView& input, const Shape& shape) {
  if (node.op == OpKind::kReshape) return input.reshape(shape);
  const auto& slice = node.get<graph::SliceAttrs>();
  return input.slice(slice.axis, slice.begin, slice.end);
}

}  // namespace latent::exec
