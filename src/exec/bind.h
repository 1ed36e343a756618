// SPDX-License-Identifier: Apache-2.0
// From IR nodes to operator parameters and the implementation that serves them.
#pragma once

#include <span>
#include <variant>
#include <vector>

#include "attention/backend.h"
#include "graph/ir.h"
#include "kernels/registry.h"

namespace latent::exec {

// Where a value lives in this step: its memory at this step's shape, with scales if it is a quantised weight.
using ValueViews = std::vector<ops::WeightView>;

template <class Params>
struct Bound {
  Params params;
  const kernels::Implementation<Params>* impl = nullptr;
};

struct BoundAttention {
  ops::MlaAttentionParams params;
  const attention::Backend* backend = nullptr;
  const attention::Plan* plan = nullptr;
};

// A node ready to run. Rebinding to another shape allocates nothing.
using BoundOp =
    std::variant<std::monostate,  // a view: nothing to run
                 Bound<ops::EmbeddingParams>, Bound<ops::RmsNormParams>, Bound<ops::LinearParams>,
                 Bound<ops::HeadLinearParams>, Bound<ops::RopeParams>, Bound<ops::KvCacheWriteParams>,
                 Bound<ops::RopeKvCacheWriteParams>, Bound<ops::SiluParams>, Bound<ops::MulParams>,
                 Bound<ops::SiluMulParams>, Bound<ops::AddParams>, Bound<ops::ScaleParams>,
                 Bound<ops::RouterParams>, Bound<ops::MoeExpertsParams>, Bound<ops::GatherRowsParams>,
                 Bound<ops::DequantizeParams>, Bound<ops::TransposeParams>, BoundAttention>;

struct BindOptions {
  bool reference_kernels = false;
  // For attention nodes.
  const attention::Backend* backend = nullptr;
  const attention::Plan* plan = nullptr;
};

// CHECKs that the operands obey the operator's shape rule: the verifier has seen to it.
BoundOp bind(const graph::Node& node, const ValueViews& views, const BindOptions& options);

void run(const BoundOp& op, const kernels::KernelContext& context);

// Scratch of an operator other than attention, for these operands or smaller ones.
size_t workspace_bytes(const BoundOp& op, int num_threads);

// What attention is chosen for.
attention::MlaDesc attention_desc(const graph::Node& node, const graph::Graph& graph);

// The view of a reshape's or slice's output, from its input's.
TensorView apply_view(const graph::Node& node, const TensorView& input, const Shape& shape);

}  // namespace latent::exec
