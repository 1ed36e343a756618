// SPDX-License-Identifier: Apache-2.0
#include "exec/prologue.h"

#include "base/check.h"

namespace latent::exec {
namespace {

Shape constant_shape(const graph::Value& value) {
  std::vector<int64_t> extents;
  for (const graph::Dim& d : value.dims) {
    CHECK(d.is_constant(), "{} is folded but has a symbolic shape", value.name);
    extents.push_back(d.extent);
  }
  return Shape(extents);
}

Status check_weight(const graph::Value& value, const graph::WeightStore& weights) {
  if (!weights.has(value.name))
    return make_error(ErrorCode::kNotFound, "the graph needs a weight {} that was not loaded", value.name);
  const TensorView view = weights.view(value.name).values;
  if (view.dtype() == value.dtype && view.shape() == constant_shape(value)) return {};
  return make_error(ErrorCode::kInvalidArgument, "weight {} is {}, the graph wants {}{}", value.name,
                    to_string(view), to_string(value.dtype), to_string(value.dims));
}

Status compute(const graph::Node& node, const graph::Graph& graph, graph::WeightStore* weights,
               int num_threads, ValueViews* views) {
  const graph::Value& value = graph.value(node.outputs[0]);
  Result<Tensor> tensor = Tensor::create(value.dtype, constant_shape(value), PoisonPattern::kNan);
  if (!tensor) return tensor.error().with_context(value.name);
  (*views)[static_cast<size_t>(node.outputs[0])].values = tensor->view();
  const BoundOp op = bind(node, *views, {});
  Result<HostBuffer> scratch = HostBuffer::create(workspace_bytes(op, num_threads));
  if (!scratch) return scratch.error().with_context(value.name);
  run(op, {.num_threads = num_threads, .workspace = {scratch->data(), scratch->size_bytes()}});
  weights->add(value.name, {.values = *std::move(tensor)});
  return {};
}

}  // namespace

Status run_prologue(const graph::Graph& graph, graph::WeightStore* weights, int num_threads,
                    ValueViews* views) {
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (graph.values[i].kind != graph::ValueKind::kWeight) continue;
    if (Status s = check_weight(graph.values[i], *weights); !s) return s;
    (*views)[i] = weights->view(graph.values[i].name);
  }
  for (const graph::Node& node : graph.prologue) {
    const graph::ValueId id = node.outputs[0];
    const graph::Value& value = graph.value(id);
    if (is_view(node.op)) {
      const TensorView& input = (*views)[static_cast<size_t>(node.inputs[0])].values;
      (*views)[static_cast<size_t>(id)].values = apply_view(node, input, constant_shape(value));
    } else if (weights->has(value.name)) {
      (*views)[static_cast<size_t>(id)] = weights->view(value.name);
    } else if (Status s = compute(node, graph, weights, num_threads, views); !s) {
      return s;
    }
  }
  return {};
}

}  // namespace latent::exec
