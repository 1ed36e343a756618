// SPDX-License-Identifier: Apache-2.0
#include "graph/ir.h"

#include <fmt/format.h>

#include <iterator>

namespace latent::graph {
namespace {

constexpr const char* kOpNames[] = {
    "embedding",
    "rms_norm",
    "linear",
    "head_linear",
    "rope",
    "kv_cache_write",
    "rope_kv_cache_write",
    "mla_attention",
    "silu",
    "mul",
    "silu_mul",
    "add",
    "scale",
    "router",
    "moe_experts",
    "gather_rows",
    "dequantize",
    "transpose",
    "reshape",
    "slice",
};
static_assert(std::size(kOpNames) == static_cast<size_t>(OpKind::kSlice) + 1, "a name for every operator");

constexpr const char* kSymbolNames[] = {
    "constant", "num_tokens", "num_seqs", "num_seqs+1", "num_outputs", "max_pages", "num_pages",
};
static_assert(std::size(kSymbolNames) == static_cast<size_t>(Symbol::kNumPages) + 1,
              "a name for every symbol");

struct AttrsPrinter {
  std::string operator()(const std::monostate&) const { return ""; }
  std::string operator()(const ops::EmbeddingAttrs& a) const { return fmt::format("scale={}", a.scale); }
  std::string operator()(const ops::RmsNormAttrs& a) const { return fmt::format("eps={}", a.eps); }
  std::string operator()(const ops::RopeAttrs& a) const {
    return a.style == ops::RopeStyle::kInterleaved ? "interleaved" : "halves";
  }
  std::string operator()(const ops::MlaAttentionAttrs& a) const {
    return fmt::format("{} heads={} latent={} rope={} nope={} v={} scale={:.7f}",
                       a.form == ops::AttentionForm::kAbsorbed ? "absorbed" : "multi-head", a.num_heads,
                       a.kv_rank, a.rope_dim, a.nope_dim, a.v_dim, a.softmax_scale);
  }
  std::string operator()(const ops::AddAttrs& a) const {
    return a.b_scale == 1.0f ? "" : fmt::format("b_scale={}", a.b_scale);
  }
  std::string operator()(const ops::ScaleAttrs& a) const { return fmt::format("factor={}", a.factor); }
  std::string operator()(const ops::RouterAttrs& a) const {
    return fmt::format("{} top {} of {}, {} of {} groups, scale={}{}",
                       a.score == ops::RouterScore::kSigmoid ? "sigmoid" : "softmax", a.top_k, a.num_experts,
                       a.topk_group, a.num_groups, a.routed_scale, a.norm_topk ? ", normalised" : "");
  }
  std::string operator()(const ops::MoeExpertsAttrs& a) const {
    return a.first_expert == 0 ? "" : fmt::format("first_expert={}", a.first_expert);
  }
  std::string operator()(const ops::TransposeAttrs& a) const {
    return fmt::format("axes {}<->{}", a.axis_a, a.axis_b);
  }
  std::string operator()(const SliceAttrs& a) const {
    return fmt::format("axis {} [{}, {})", a.axis, a.begin, a.end);
  }
};

}  // namespace

ValueId Graph::root(ValueId id) const {
  while (value(id).alias_of != kNoValue) id = value(id).alias_of;
  return id;
}

const char* op_name(OpKind op) { return kOpNames[static_cast<size_t>(op)]; }
const char* symbol_name(Symbol symbol) { return kSymbolNames[static_cast<size_t>(symbol)]; }
bool is_view(OpKind op) { return op == OpKind::kReshape || op == OpKind::kSlice; }

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (const Dim& d : dims) {
    if (text.size() > 1) text += ", ";
    text += d.is_constant() ? fmt::format("{}", d.extent) : symbol_name(d.symbol);
  }
  return text + "]";
}

std::string to_string(const OpAttrs& attrs) { return std::visit(AttrsPrinter{}, attrs); }

std::string describe(const Node& node) {
  return node.layer == kNoLayer ? op_name(node.op) : fmt::format("layer {} {}", node.layer, op_name(node.op));
}

}  // namespace latent::graph
