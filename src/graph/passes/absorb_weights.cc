// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"
#include "graph/passes/passes.h"
#include "graph/rewrite.h"

namespace latent::graph {
namespace {

struct AbsorbedWeights {
  ValueId w_uk_t;  // [num_heads, kv_rank, nope_dim]
  ValueId w_uv;    // [num_heads, v_dim, kv_rank]
};

class Absorber {
 public:
  explicit Absorber(Graph& graph) : graph_(graph) {}

  int run() {
    std::vector<Node> old = std::move(graph_.nodes);
    graph_.nodes.clear();
    int matches = 0;
    for (Node& node : old) {
      const bool match = node.op == OpKind::kMlaAttention &&
                         node.get<ops::MlaAttentionAttrs>().form == ops::AttentionForm::kMultiHead;
      if (match)
        rewrite(node);
      else
        graph_.nodes.push_back(std::move(node));
      matches += match ? 1 : 0;
    }
    return matches;
  }

 private:
  std::string name(const char* what) const { return fmt::format("layers.{}.{}", layer_, what); }

  ValueId emit(OpKind op, OpAttrs attrs, std::vector<ValueId> inputs, ValueId out) {
    graph_.nodes.push_back({.op = op,
                            .attrs = std::move(attrs),
                            .inputs = std::move(inputs),
                            .outputs = {out},
                            .layer = layer_});
    return out;
  }

  ValueId view(OpKind op, OpAttrs attrs, ValueId x, const char* what, Dims dims) {
    return emit(op, std::move(attrs), {x},
                add_value(graph_, name(what), graph_.value(x).dtype, std::move(dims), x));
  }

  AbsorbedWeights split(ValueId kv_b, const ops::MlaAttentionAttrs& a) {
    const DType dtype = graph_.value(kv_b).dtype;
    CHECK(dtype != DType::kF8E4M3, "{}: kv_b must be dequantised before it is absorbed",
          graph_.value(kv_b).name);
    const ValueId heads =
        view(OpKind::kReshape, {}, kv_b, "kv_b.heads", {a.num_heads, a.nope_dim + a.v_dim, a.kv_rank});
    const ValueId w_uk = view(OpKind::kSlice, SliceAttrs{1, 0, a.nope_dim}, heads, "w_uk",
                              {a.num_heads, a.nope_dim, a.kv_rank});
    const ValueId w_uv = view(OpKind::kSlice, SliceAttrs{1, a.nope_dim, a.nope_dim + a.v_dim}, heads, "w_uv",
                              {a.num_heads, a.v_dim, a.kv_rank});
    const ValueId w_uk_t = add_value(graph_, name("w_uk_t"), dtype, {a.num_heads, a.kv_rank, a.nope_dim});
    emit(OpKind::kTranspose, ops::TransposeAttrs{1, 2}, {w_uk}, w_uk_t);
    return {w_uk_t, w_uv};
  }

  void rewrite(const Node& node) {
    ops::MlaAttentionAttrs attrs = node.get<ops::MlaAttentionAttrs>();
    layer_ = node.layer;
    const AbsorbedWeights w = split(node.inputs[6], attrs);
    const ValueId out = node.outputs[0];
    const DType dtype = graph_.value(out).dtype;
    const Dim tokens = graph_.value(out).dims[0];
    const ValueId q_latent =
        add_value(graph_, name("q_latent"), dtype, {tokens, attrs.num_heads, attrs.kv_rank});
    emit(OpKind::kHeadLinear, {}, {node.inputs[0], w.w_uk_t}, q_latent);
    attrs.form = ops::AttentionForm::kAbsorbed;
    const ValueId o_latent =
        add_value(graph_, name("o_latent"), dtype, {tokens, attrs.num_heads, attrs.kv_rank});
    std::vector<ValueId> inputs(node.inputs.begin(), node.inputs.begin() + 6);
    inputs[0] = q_latent;
    emit(OpKind::kMlaAttention, attrs, std::move(inputs), o_latent);
    emit(OpKind::kHeadLinear, {}, {o_latent, w.w_uv}, out);
  }

  Graph& graph_;
  int layer_ = kNoLayer;
};

}  // namespace

int absorb_weights(Graph& graph) { return Absorber(graph).run(); }

}  // namespace latent::graph
