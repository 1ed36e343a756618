// SPDX-License-Identifier: Apache-2.0
// The graph is the model: values and the nodes that compute them, in execution order. A step's first
// dimensions are symbolic, so one graph serves every batch. Nodes refer to operators of ops/; nothing here
// knows a kernel.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "ops/elementwise.h"
#include "ops/fold.h"
#include "ops/kv_layout.h"
#include "ops/mla_attention.h"
#include "ops/moe.h"
#include "ops/rope.h"
#include "tensor/dtype.h"

namespace latent::graph {

enum class Symbol : uint8_t {
  kConstant,        // extent says it
  kNumTokens,       // rows of this step
  kNumSeqs,         // requests of this step
  kNumSeqsPlusOne,  // for prefix sums
  kNumOutputs,      // rows whose logits are wanted
  kMaxPages,        // width of the block table
  kNumPages,        // pages in the pool
};

struct Dim {
  int64_t extent = 0;  // for kConstant
  Symbol symbol = Symbol::kConstant;

  Dim(int64_t constant) : extent(constant) {}  // NOLINT: implicit by design
  Dim(Symbol s) : symbol(s) {}                 // NOLINT
  bool is_constant() const { return symbol == Symbol::kConstant; }
  friend bool operator==(const Dim&, const Dim&) = default;
};
using Dims = std::vector<Dim>;

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

enum class ValueKind : uint8_t {
  kInput,         // a step buffer the caller fills: ids, positions, block table
  kWeight,        // looked up by name in the weight store
  kCache,         // a layer's paged cache
  kIntermediate,  // computed by a node
};

struct Value {
  std::string name;  // unique in the graph
  ValueKind kind = ValueKind::kIntermediate;
  DType dtype = DType::kF32;
  Dims dims;
  int block_rows = 0;  // quantised weights: the block of one scale
  int block_cols = 0;
  ValueId alias_of = kNoValue;  // shares the memory of that value (view, new version of a cache)
  // What the executor fills the memory with before the node that writes it runs (pass mark_poison).
  PoisonPattern poison = PoisonPattern::kNone;
};

enum class OpKind : uint8_t {
  kEmbedding,         // (ids, table)
  kRmsNorm,           // (x, weight)
  kLinear,            // (x, weight)
  kHeadLinear,        // (x, weight)
  kRope,              // (x, positions, cos_sin)
  kKvCacheWrite,      // (kv_c, k_pe, slots, cache) -> cache
  kRopeKvCacheWrite,  // (kv_c, k_pe, slots, cache, positions, cos_sin) -> cache
  kMlaAttention,      // (q_nope, q_pe, cache, q_starts, kv_lens, block_table[, kv_b])
  kSilu,              // (x)
  kMul,               // (a, b)
  kSiluMul,           // (gate, up)
  kAdd,               // (a, b)
  kScale,             // (x)
  kRouter,            // (logits[, bias]) -> weights, ids
  kMoeExperts,        // (x, weights, ids, gate, up, down)
  kGatherRows,        // (x, rows)
  kDequantize,        // (weight)
  kTranspose,         // (x)
  kReshape,           // (x) -> view
  kSlice,             // (x) -> view
};

struct SliceAttrs {
  int axis = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

using OpAttrs = std::variant<std::monostate, ops::EmbeddingAttrs, ops::RmsNormAttrs, ops::RopeAttrs,
                             ops::MlaAttentionAttrs, ops::AddAttrs, ops::ScaleAttrs, ops::RouterAttrs,
                             ops::MoeExpertsAttrs, ops::TransposeAttrs, SliceAttrs>;

inline constexpr int kNoLayer = -1;

struct Node {
  OpKind op;
  OpAttrs attrs;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  int layer = kNoLayer;  // decoder layer from 0; kNoLayer outside

  template <class Attrs>
  const Attrs& get() const {
    return std::get<Attrs>(attrs);
  }
};

struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> prologue;    // run once at load, on weights only (pass fold_constants)
  std::vector<Node> nodes;       // run every step, in this order
  std::vector<ValueId> outputs;  // kept until the end of the step

  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  Value& value(ValueId id) { return values[static_cast<size_t>(id)]; }
  // The value whose memory `id` lives in.
  ValueId root(ValueId id) const;
};

const char* op_name(OpKind op);  // "mla_attention"
const char* symbol_name(Symbol symbol);
bool is_view(OpKind op);  // reshape, slice: no kernel runs
std::string to_string(const Dims& dims);
std::string to_string(const OpAttrs& attrs);  // "eps=1e-06", empty where there is nothing to say
// "layer 2 mla_attention", for messages.
std::string describe(const Node& node);

}  // namespace latent::graph
