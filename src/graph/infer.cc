// SPDX-License-Identifier: Apache-2.0
#include "graph/infer.h"

#include <algorithm>
#include <array>
#include <utility>

namespace latent::graph {
namespace {

// The inputs of one node, with the checks that most rules need.
class Operands {
 public:
  Operands(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  size_t count() const { return node_.inputs.size(); }
  const Dims& operator[](size_t i) const { return graph_.value(node_.inputs[i]).dims; }

  Error fail(const std::string& message) const {
    return make_error(ErrorCode::kInvalidArgument, "{}: {}", describe(node_), message);
  }
  bool arity(size_t least, size_t most) const { return count() >= least && count() <= most; }
  bool rank(size_t i, size_t want) const { return (*this)[i].size() == want; }
  Error mismatch() const {
    std::string shapes;
    for (size_t i = 0; i < count(); ++i) shapes += (i == 0 ? "" : ", ") + to_string((*this)[i]);
    return fail("operands do not fit: " + shapes);
  }

 private:
  const Graph& graph_;
  const Node& node_;
};

using Shapes = Result<std::vector<Dims>>;

Shapes one(Dims dims) { return std::vector<Dims>{std::move(dims)}; }

Shapes infer_attention(const Operands& in, const ops::MlaAttentionAttrs& a) {
  const bool absorbed = a.form == ops::AttentionForm::kAbsorbed;
  if (!in.arity(absorbed ? 6 : 7, absorbed ? 6 : 7) || !in.rank(0, 3) || !in.rank(1, 3) || !in.rank(2, 3))
    return in.mismatch();
  const bool fits = in[0][0] == in[1][0] && in[0][1] == Dim(a.num_heads) && in[1][1] == Dim(a.num_heads) &&
                    in[0][2] == Dim(absorbed ? a.kv_rank : a.nope_dim) && in[1][2] == Dim(a.rope_dim) &&
                    in[2][1] == Dim(a.page_tokens) && in[2][2] == Dim(a.kv_rank + a.rope_dim);
  if (!fits) return in.mismatch();
  if (!absorbed && in[6] != Dims{a.num_heads * (a.nope_dim + a.v_dim), a.kv_rank}) return in.mismatch();
  return one({in[0][0], a.num_heads, absorbed ? a.kv_rank : a.v_dim});
}

Shapes infer_router(const Operands& in, const ops::RouterAttrs& a) {
  if (!in.arity(1, 2) || !in.rank(0, 2) || in[0][1] != Dim(a.num_experts)) return in.mismatch();
  if (in.count() == 2 && in[1] != Dims{a.num_experts}) return in.mismatch();
  return std::vector<Dims>{{in[0][0], a.top_k}, {in[0][0], a.top_k}};
}

Shapes infer_experts(const Operands& in) {
  if (!in.arity(6, 6) || !in.rank(0, 2) || in[1] != in[2] || !in.rank(3, 3)) return in.mismatch();
  const Dims down = {in[3][0], in[3][2], in[3][1]};
  return in[3] == in[4] && in[5] == down && in[3][2] == in[0][1] ? one(in[0]) : Shapes(in.mismatch());
}

Shapes infer_cache_write(const Operands& in, size_t arity) {
  if (!in.arity(arity, arity) || !in.rank(0, 2) || !in.rank(1, 2) || !in.rank(3, 3)) return in.mismatch();
  const bool fits =
      in[0][0] == in[1][0] && in[2] == Dims{in[0][0]} && in[3][2] == Dim(in[0][1].extent + in[1][1].extent);
  return fits ? one(in[3]) : Shapes(in.mismatch());
}

Shapes infer_slice(const Operands& in, const SliceAttrs& a) {
  if (!in.arity(1, 1) || a.axis < 0 || static_cast<size_t>(a.axis) >= in[0].size()) return in.mismatch();
  Dims dims = in[0];
  Dim& dim = dims[static_cast<size_t>(a.axis)];
  if (!dim.is_constant() || a.begin < 0 || a.begin > a.end || a.end > dim.extent)
    return in.fail("slice outside of " + to_string(in[0]));
  dim = Dim(a.end - a.begin);
  return one(std::move(dims));
}

Shapes infer_transpose(const Operands& in, const ops::TransposeAttrs& a) {
  const auto rank = static_cast<int>(in[0].size());
  if (a.axis_a < 0 || a.axis_b < 0 || a.axis_a >= rank || a.axis_b >= rank) return in.mismatch();
  Dims dims = in[0];
  std::swap(dims[static_cast<size_t>(a.axis_a)], dims[static_cast<size_t>(a.axis_b)]);
  return one(std::move(dims));
}

// The constant factor and the symbols of a shape's number of elements.
std::pair<int64_t, std::array<int, 8>> element_count(const Dims& dims) {
  std::pair<int64_t, std::array<int, 8>> count{1, {}};
  for (const Dim& d : dims) {
    if (d.is_constant())
      count.first *= d.extent;
    else
      ++count.second[static_cast<size_t>(d.symbol)];
  }
  return count;
}

Shapes infer_reshape(const Graph& graph, const Node& node, const Operands& in) {
  const Dims& dims = graph.value(node.outputs[0]).dims;
  return element_count(dims) == element_count(in[0]) ? one(dims)
                                                     : Shapes(in.fail("reshape to " + to_string(dims)));
}

}  // namespace

Result<std::vector<Dims>> infer_dims(const Graph& graph, const Node& node) {
  const Operands in(graph, node);
  if (in.count() == 0) return in.fail("no operands");
  switch (node.op) {
    case OpKind::kEmbedding:
      if (!in.arity(2, 2) || !in.rank(0, 1) || !in.rank(1, 2)) return in.mismatch();
      return one({in[0][0], in[1][1]});
    case OpKind::kRmsNorm:
      if (!in.arity(2, 2) || !in.rank(0, 2) || in[1] != Dims{in[0][1]}) return in.mismatch();
      return one(in[0]);
    case OpKind::kLinear:
      if (!in.arity(2, 2) || !in.rank(0, 2) || !in.rank(1, 2) || in[0][1] != in[1][1]) return in.mismatch();
      return one({in[0][0], in[1][0]});
    case OpKind::kHeadLinear:
      if (!in.arity(2, 2) || !in.rank(0, 3) || !in.rank(1, 3)) return in.mismatch();
      if (in[0][1] != in[1][0] || in[0][2] != in[1][2]) return in.mismatch();
      return one({in[0][0], in[0][1], in[1][1]});
    case OpKind::kRope:
      if (!in.arity(3, 3) || !in.rank(0, 3) || in[1] != Dims{in[0][0]} || !in.rank(2, 2) ||
          in[2][1] != in[0][2])
        return in.mismatch();
      return one(in[0]);
    case OpKind::kKvCacheWrite:
      return infer_cache_write(in, 4);
    case OpKind::kRopeKvCacheWrite:
      return infer_cache_write(in, 6);
    case OpKind::kMlaAttention:
      return infer_attention(in, node.get<ops::MlaAttentionAttrs>());
    case OpKind::kSilu:
    case OpKind::kScale:
    case OpKind::kDequantize:
      return in.arity(1, 1) && in.rank(0, 2) ? one(in[0]) : Shapes(in.mismatch());
    case OpKind::kMul:
    case OpKind::kSiluMul:
    case OpKind::kAdd:
      return in.arity(2, 2) && in[0] == in[1] ? one(in[0]) : Shapes(in.mismatch());
    case OpKind::kRouter:
      return infer_router(in, node.get<ops::RouterAttrs>());
    case OpKind::kMoeExperts:
      return infer_experts(in);
    case OpKind::kGatherRows:
      if (!in.arity(2, 2) || !in.rank(0, 2) || !in.rank(1, 1)) return in.mismatch();
      return one({in[1][0], in[0][1]});
    case OpKind::kTranspose:
      return infer_transpose(in, node.get<ops::TransposeAttrs>());
    case OpKind::kReshape:
      return infer_reshape(graph, node, in);
    case OpKind::kSlice:
      return infer_slice(in, node.get<SliceAttrs>());
  }
  return in.fail("no shape rule");
}

}  // namespace latent::graph
