// SPDX-License-Identifier: Apache-2.0
#include "base/math.h"
#include "ops/elementwise.h"
#include "ops/fold.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "tensor/matcher.h"

namespace latent::ops {
namespace {

constexpr std::initializer_list<DType> kActivation = {DType::kF32, DType::kBF16};
constexpr std::initializer_list<DType> kUnquantised = {DType::kF32, DType::kF16, DType::kBF16};
constexpr std::initializer_list<DType> kWeight = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3};

Status fail(const char* where, std::string message) {
  return make_error(ErrorCode::kInvalidArgument, "{}: {}", where, message);
}

// Scales must be there for f8_e4m3, absent else, and of the clipped block grid's shape.
Status check_scales(const char* where, const WeightView& w) {
  if (w.values.stride(w.values.rank() - 1) != 1 && w.cols() > 1)
    return fail(where, "the columns of a weight must have unit stride");
  if (w.values.dtype() != DType::kF8E4M3)
    return w.scales.empty() ? Status() : fail(where, "block scales given for a weight that is not f8_e4m3");
  if (w.scales.empty() || w.block_rows <= 0 || w.block_cols <= 0)
    return fail(where, "an f8_e4m3 weight needs block scales and a block size");
  const int rank = w.scales.rank();
  const bool fits = w.scales.dtype() == DType::kF32 && rank == w.values.rank() &&
                    (rank == 2 || w.scales.dim(0) == w.values.dim(0)) &&
                    w.scales.dim(rank - 2) == ceil_div<int64_t>(w.rows(), w.block_rows) &&
                    w.scales.dim(rank - 1) == ceil_div<int64_t>(w.cols(), w.block_cols);
  if (fits) return {};
  return fail(where, fmt::format("scales {} do not fit a weight {} of {} x {} blocks", to_string(w.scales),
                                 to_string(w.values), w.block_rows, w.block_cols));
}

Status check_same_rows(const char* where, std::initializer_list<const TensorView*> views) {
  ShapeMatcher m(where);
  for (const TensorView* v : views) m.match("operand", *v, {"num_tokens", "width"}, kActivation);
  return m.status();
}

}  // namespace

WeightView WeightView::at(int64_t index) const {
  return {.values = values.at(index),
          .scales = scales.empty() ? TensorView() : scales.at(index),
          .block_rows = block_rows,
          .block_cols = block_cols};
}

Status check(const LinearParams& p) {
  ShapeMatcher m("linear");
  m.match("x", p.x, {"num_tokens", "in"}, kActivation);
  m.match("weight", p.weight.values, {"out", "in"}, kWeight);
  m.match("out", p.out, {"num_tokens", "out"}, kActivation);
  return m.status() ? check_scales("linear", p.weight) : m.status();
}

Status check(const HeadLinearParams& p) {
  ShapeMatcher m("head_linear");
  m.match("x", p.x, {"num_tokens", "num_heads", "in"}, kActivation);
  m.match("weight", p.weight.values, {"num_heads", "out", "in"}, kWeight);
  m.match("out", p.out, {"num_tokens", "num_heads", "out"}, kActivation);
  return m.status() ? check_scales("head_linear", p.weight) : m.status();
}

Status check(const EmbeddingParams& p) {
  ShapeMatcher m("embedding");
  m.match("ids", p.ids, {"num_tokens"}, {DType::kI32});
  m.match("table", p.table.values, {"vocab", "hidden"}, kWeight);
  m.match("out", p.out, {"num_tokens", "hidden"}, kActivation);
  return m.status() ? check_scales("embedding", p.table) : m.status();
}

Status check(const RmsNormParams& p) {
  ShapeMatcher m("rms_norm");
  m.match("x", p.x, {"num_tokens", "width"}, kActivation);
  m.match("weight", p.weight, {"width"}, kUnquantised);
  m.match("out", p.out, {"num_tokens", "width"}, kActivation);
  return m.status();
}

Status check(const AddParams& p) { return check_same_rows("add", {&p.a, &p.b, &p.out}); }
Status check(const ScaleParams& p) { return check_same_rows("scale", {&p.x, &p.out}); }
Status check(const SiluParams& p) { return check_same_rows("silu", {&p.x, &p.out}); }
Status check(const MulParams& p) { return check_same_rows("mul", {&p.a, &p.b, &p.out}); }
Status check(const SiluMulParams& p) { return check_same_rows("silu_mul", {&p.gate, &p.up, &p.out}); }

Status check(const GatherRowsParams& p) {
  ShapeMatcher m("gather_rows");
  m.match("x", p.x, {"num_tokens", "width"}, kActivation);
  m.match("rows", p.rows, {"num_outputs"}, {DType::kI32});
  m.match("out", p.out, {"num_outputs", "width"}, {p.x.dtype()});
  return m.status();
}

Status check(const RouterParams& p) {
  const RouterAttrs& a = p.attrs;
  ShapeMatcher m("router");
  m.bind("num_experts", a.num_experts);
  m.bind("top_k", a.top_k);
  m.match("logits", p.logits, {"num_tokens", "num_experts"}, {DType::kF32});
  if (!p.bias.empty()) m.match("bias", p.bias, {"num_experts"}, {DType::kF32});
  m.match("weights", p.weights, {"num_tokens", "top_k"}, {DType::kF32});
  m.match("ids", p.ids, {"num_tokens", "top_k"}, {DType::kI32});
  if (!m.status()) return m.status();
  if (a.num_groups < 1 || a.num_experts % a.num_groups != 0)
    return fail("router", fmt::format("{} experts do not make {} groups", a.num_experts, a.num_groups));
  const int kept = a.num_experts / a.num_groups * a.topk_group;
  if (a.topk_group < 1 || a.topk_group > a.num_groups || a.top_k < 1 || a.top_k > kept)
    return fail("router",
                fmt::format("top {} of {} groups of {} hold {} experts, {} are asked for", a.topk_group,
                            a.num_groups, a.num_experts / a.num_groups, kept, a.top_k));
  return {};
}

Status check(const MoeExpertsParams& p) {
  ShapeMatcher m("moe_experts");
  m.match("x", p.x, {"num_tokens", "hidden"}, kActivation);
  m.match("weights", p.weights, {"num_tokens", "top_k"}, {DType::kF32});
  m.match("ids", p.ids, {"num_tokens", "top_k"}, {DType::kI32});
  m.match("gate", p.gate.values, {"num_local", "inter", "hidden"}, kWeight);
  m.match("up", p.up.values, {"num_local", "inter", "hidden"}, {p.gate.values.dtype()});
  m.match("down", p.down.values, {"num_local", "hidden", "inter"}, {p.gate.values.dtype()});
  m.match("out", p.out, {"num_tokens", "hidden"}, kActivation);
  if (!m.status()) return m.status();
  for (const WeightView* w : {&p.gate, &p.up, &p.down})
    if (Status s = check_scales("moe_experts", *w); !s) return s;
  return {};
}

Status check(const DequantizeParams& p) {
  ShapeMatcher m("dequantize");
  m.match("weight", p.weight.values, {"rows", "cols"}, kWeight);
  m.match("out", p.out, {"rows", "cols"}, kUnquantised);
  return m.status() ? check_scales("dequantize", p.weight) : m.status();
}

Status check(const TransposeParams& p) {
  const int rank = p.x.rank();
  const auto [a, b] = p.attrs;
  if (a < 0 || b < 0 || a >= rank || b >= rank)
    return fail("transpose", fmt::format("axes {} and {} of {}", a, b, to_string(p.x)));
  if (p.x.transpose(a, b).shape() != p.out.shape() || p.x.dtype() != p.out.dtype())
    return fail("transpose", fmt::format("{} of {}", to_string(p.out), to_string(p.x)));
  return {};
}

}  // namespace latent::ops
