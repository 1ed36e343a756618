// SPDX-License-Identifier: Apache-2.0
#include "exec/executor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "exec/bind.h"
#include "exec/memory_plan.h"
#include "exec/prologue.h"

namespace latent::exec {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::Symbol;
using graph::Value;
using graph::ValueId;
using graph::ValueKind;

// The extents that a step gives to symbols.
struct StepShape {
  int64_t num_tokens = 0;
  int64_t num_seqs = 0;
  int64_t num_outputs = 0;
  friend bool operator==(const StepShape&, const StepShape&) = default;
};

// A step buffer of the graph, by the name model builders give it.
struct StepField {
  const char* name;
  std::span<const int32_t> StepInputs::*data;
};
constexpr StepField kStepFields[] = {
    {"token_ids", &StepInputs::token_ids},
    {"positions", &StepInputs::positions},
    {"slots", &StepInputs::slots},
    {"q_starts", &StepInputs::q_starts},
    {"kv_lens", &StepInputs::kv_lens},
    {"block_table", &StepInputs::block_table},
    {"output_rows", &StepInputs::output_rows},
};

struct InputBuffer {
  ValueId id;
  const StepField* field;
  Tensor memory;  // at the largest step
};

// Where an intermediate lives in the arena.
struct Placement {
  ValueId id;
  int64_t offset = 0;
  int64_t bytes = 0;
};

class GraphExecutor final : public Executor {
 public:
  GraphExecutor(Graph graph, graph::WeightStore* weights, KvCache* cache, const StepLimits& limits,
                const ExecOptions& options)
      : graph_(std::move(graph)),
        weights_(weights),
        cache_(cache),
        limits_(limits),
        options_(options),
        views_(graph_.values.size()) {}

  Status initialise();

  Result<TensorView> run(const StepInputs& inputs) override;
  void set_observer(Observer observer) override { observer_ = std::move(observer); }
  const Graph& graph() const override { return graph_; }
  int64_t arena_bytes() const override {
    return static_cast<int64_t>(arena_.size_bytes()) + static_cast<int64_t>(scratch_.size_bytes());
  }
  int64_t arena_bytes_without_reuse() const override {
    return unshared_bytes_ + static_cast<int64_t>(scratch_.size_bytes());
  }

 private:
  TensorView& view(ValueId id) { return views_[static_cast<size_t>(id)].values; }
  Shape resolve(const graph::Dims& dims, const StepShape& shape) const;
  StepShape largest() const { return {limits_.max_tokens, limits_.max_seqs, limits_.max_outputs}; }

  Status create_inputs();
  Status bind_caches();
  Status choose_attention();
  Status place_intermediates();
  Status reserve_scratch();
  void rebind(const StepShape& shape);
  void copy_inputs(const StepInputs& inputs);
  bool run_node(size_t index);  // false: the observer wants no more
  std::span<std::byte> scratch_of(size_t index);

  Graph graph_;
  graph::WeightStore* weights_;
  KvCache* cache_;
  StepLimits limits_;
  ExecOptions options_;
  Observer observer_;

  ValueViews views_;  // every value at shape_
  StepShape shape_{-1, -1, -1};
  std::vector<BoundOp> ops_;  // one a node, at shape_
  std::vector<InputBuffer> inputs_;
  std::vector<Placement> placements_;
  HostBuffer arena_;
  HostBuffer scratch_;
  int64_t unshared_bytes_ = 0;

  const attention::Backend* backend_ = nullptr;
  attention::MlaDesc desc_;
  attention::Limits attention_limits_;
  attention::Plan plan_;
  size_t attention_scratch_ = 0;
};

Shape GraphExecutor::resolve(const graph::Dims& dims, const StepShape& shape) const {
  std::array<int64_t, Shape::kMaxRank> extents{};
  for (size_t i = 0; i < dims.size(); ++i) {
    switch (dims[i].symbol) {
      case Symbol::kConstant:
        extents[i] = dims[i].extent;
        break;
      case Symbol::kNumTokens:
        extents[i] = shape.num_tokens;
        break;
      case Symbol::kNumSeqs:
        extents[i] = shape.num_seqs;
        break;
      case Symbol::kNumSeqsPlusOne:
        extents[i] = shape.num_seqs + 1;
        break;
      case Symbol::kNumOutputs:
        extents[i] = shape.num_outputs;
        break;
      case Symbol::kMaxPages:
        extents[i] = limits_.max_pages;
        break;
      case Symbol::kNumPages:
        extents[i] = cache_->num_pages();
        break;
    }
  }
  return Shape(std::span(extents.data(), dims.size()));
}

Status GraphExecutor::initialise() {
  if (Status s = run_prologue(graph_, weights_, options_.num_threads, &views_); !s) return s;
  if (Status s = create_inputs(); !s) return s;
  if (Status s = bind_caches(); !s) return s;
  if (Status s = choose_attention(); !s) return s;
  if (Status s = place_intermediates(); !s) return s;
  ops_.resize(graph_.nodes.size());
  rebind(largest());
  return reserve_scratch();
}

Status GraphExecutor::create_inputs() {
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    const Value& value = graph_.values[i];
    if (value.kind != ValueKind::kInput) continue;
    const auto* field = std::find_if(std::begin(kStepFields), std::end(kStepFields),
                                     [&](const StepField& f) { return value.name == f.name; });
    if (field == std::end(kStepFields))
      return make_error(ErrorCode::kInvalidArgument, "{}: no step has an input '{}'", graph_.name,
                        value.name);
    Result<Tensor> memory = Tensor::create(value.dtype, resolve(value.dims, largest()), options_.poison);
    if (!memory) return memory.error().with_context(value.name);
    inputs_.push_back({static_cast<ValueId>(i), field, *std::move(memory)});
  }
  return {};
}

Status GraphExecutor::bind_caches() {
  int layer = 0;
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    if (graph_.values[i].kind != ValueKind::kCache) continue;
    if (layer == cache_->num_layers())
      return make_error(ErrorCode::kInvalidArgument, "{}: a cache of {} layers is too small", graph_.name,
                        layer);
    views_[i].values = cache_->layer(layer++);
  }
  return {};
}

Status GraphExecutor::choose_attention() {
  bool any = false;
  for (const Node& node : graph_.nodes) {
    if (node.op != graph::OpKind::kMlaAttention) continue;
    const attention::MlaDesc desc = attention_desc(node, graph_);
    CHECK(!any || desc.attrs.form == desc_.attrs.form, "{}: layers with two forms of attention", graph_.name);
    desc_ = desc;
    any = true;
  }
  if (!any) return {};
  const std::string forced = options_.reference_kernels ? "ref" : options_.attention_backend;
  Result<const attention::Backend*> backend = attention::select(desc_, forced);
  if (!backend) return backend.error();
  backend_ = *backend;
  attention_limits_ = {.max_tokens = limits_.max_tokens,
                       .max_seqs = limits_.max_seqs,
                       .max_kv_len = limits_.max_pages * cache_->layout().page_tokens,
                       .num_threads = options_.num_threads,
                       .deterministic = options_.deterministic};
  backend_->reserve_plan(desc_, attention_limits_, &plan_);
  attention_scratch_ = backend_->workspace_bytes(desc_, attention_limits_);
  return {};
}

Status GraphExecutor::place_intermediates() {
  std::vector<LiveRange> ranges;
  std::vector<int> range_of(graph_.values.size(), -1);
  const auto read = [&](ValueId id, int at) {
    const int range = range_of[static_cast<size_t>(graph_.root(id))];
    if (range >= 0) ranges[static_cast<size_t>(range)].last = at;
  };
  for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) {
    const Node& node = graph_.nodes[static_cast<size_t>(i)];
    for (const ValueId id : node.inputs) read(id, i);
    for (const ValueId id : node.outputs) {
      const Value& value = graph_.value(id);
      if (value.alias_of != kNoValue) continue;
      const int64_t bytes =
          resolve(value.dims, largest()).num_elements() * static_cast<int64_t>(dtype_bytes(value.dtype));
      range_of[static_cast<size_t>(id)] = static_cast<int>(ranges.size());
      ranges.push_back({i, i, bytes});
      placements_.push_back({id, 0, bytes});
      unshared_bytes_ += bytes;
    }
  }
  for (const ValueId id : graph_.outputs) read(id, static_cast<int>(graph_.nodes.size()));

  const MemoryPlan plan = plan_memory(ranges);
  for (size_t i = 0; i < placements_.size(); ++i) placements_[i].offset = plan.offsets[i];
  Result<HostBuffer> arena =
      HostBuffer::create(static_cast<size_t>(plan.total_bytes), ElementKind::kBytes, options_.poison);
  if (!arena) return arena.error().with_context("intermediates");
  arena_ = *std::move(arena);
  return {};
}

Status GraphExecutor::reserve_scratch() {
  size_t bytes = attention_scratch_;
  for (const BoundOp& op : ops_) bytes = std::max(bytes, workspace_bytes(op, options_.num_threads));
  Result<HostBuffer> scratch = HostBuffer::create(bytes, ElementKind::kBytes, options_.poison);
  if (!scratch) return scratch.error().with_context("scratch");
  scratch_ = *std::move(scratch);
  return {};
}

void GraphExecutor::rebind(const StepShape& shape) {
  shape_ = shape;
  for (const InputBuffer& input : inputs_)
    view(input.id) =
        TensorView(input.memory.view().raw(), DType::kI32, resolve(graph_.value(input.id).dims, shape));
  for (const Placement& p : placements_) {
    const Value& value = graph_.value(p.id);
    view(p.id) = TensorView(arena_.data() + p.offset, value.dtype, resolve(value.dims, shape));
  }
  const BindOptions options{
      .reference_kernels = options_.reference_kernels, .backend = backend_, .plan = &plan_};
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    const ValueId out = node.outputs[0];
    if (is_view(node.op))
      view(out) = apply_view(node, view(node.inputs[0]), resolve(graph_.value(out).dims, shape));
    else if (graph_.value(out).alias_of != kNoValue)
      view(out) = view(graph_.value(out).alias_of);  // a cache's next version
    ops_[i] = exec::bind(node, views_, options);
  }
}

void GraphExecutor::copy_inputs(const StepInputs& inputs) {
  for (const InputBuffer& input : inputs_) {
    const TensorView& memory = input.memory.view();
    fill_poison(memory.raw(), static_cast<size_t>(memory.num_bytes()), ElementKind::kInt32, options_.poison);
    const std::span<const int32_t> data = inputs.*input.field->data;
    if (input.field->data != &StepInputs::block_table) {
      std::copy(data.begin(), data.end(), memory.data<int32_t>());
      continue;
    }
    const int width = inputs.block_table_width;
    for (int64_t row = 0; row < shape_.num_seqs; ++row)
      std::copy_n(data.begin() + row * width, width, memory.row<int32_t>(row));
  }
}

std::span<std::byte> GraphExecutor::scratch_of(size_t index) {
  const bool attention = graph_.nodes[index].op == graph::OpKind::kMlaAttention;
  const size_t bytes = attention ? attention_scratch_ : workspace_bytes(ops_[index], options_.num_threads);
  CHECK(bytes <= scratch_.size_bytes(), "{} wants {} bytes of scratch, {} are reserved",
        describe(graph_.nodes[index]), bytes, scratch_.size_bytes());
  return {scratch_.data(), bytes};
}

bool GraphExecutor::run_node(size_t index) {
  const Node& node = graph_.nodes[index];
  if (is_view(node.op)) return true;
  if (view(node.outputs[0]).num_elements() == 0) return true;
  for (const ValueId id : node.outputs) {
    const Value& value = graph_.value(id);
    fill_poison(view(id).raw(), static_cast<size_t>(view(id).num_bytes()), element_kind(value.dtype),
                value.poison);
  }
  const std::span<std::byte> scratch = scratch_of(index);
  fill_poison(scratch.data(), scratch.size(), ElementKind::kFloat32, options_.poison);
  exec::run(
      ops_[index],
      {.num_threads = options_.num_threads, .deterministic = options_.deterministic, .workspace = scratch});
  if (!observer_) return true;
  for (const ValueId id : node.outputs)
    if (!observer_(node, graph_.value(id), view(id))) return false;
  return true;
}

Result<TensorView> GraphExecutor::run(const StepInputs& inputs) {
  const StepShape shape{static_cast<int64_t>(inputs.token_ids.size()),
                        static_cast<int64_t>(inputs.kv_lens.size()),
                        static_cast<int64_t>(inputs.output_rows.size())};
  if (shape.num_tokens > limits_.max_tokens || shape.num_seqs > limits_.max_seqs ||
      shape.num_outputs > limits_.max_outputs || inputs.block_table_width > limits_.max_pages)
    return make_error(ErrorCode::kExhausted,
                      "a step of {} tokens, {} requests, {} outputs, {} pages; the limits are {}, {}, {}, {}",
                      shape.num_tokens, shape.num_seqs, shape.num_outputs, inputs.block_table_width,
                      limits_.max_tokens, limits_.max_seqs, limits_.max_outputs, limits_.max_pages);
  if (shape != shape_) rebind(shape);
  copy_inputs(inputs);
  if (backend_ != nullptr)
    backend_->plan(desc_, attention_limits_, {inputs.q_starts, inputs.kv_lens}, &plan_);
  for (size_t i = 0; i < graph_.nodes.size(); ++i)
    if (!run_node(i)) return make_error(ErrorCode::kCancelled, "ended after {}", describe(graph_.nodes[i]));
  return view(graph_.outputs.front());
}

}  // namespace

Result<std::unique_ptr<Executor>> Executor::create(Graph graph, graph::WeightStore* weights, KvCache* cache,
                                                   const StepLimits& limits, const ExecOptions& options) {
  CHECK(!graph.outputs.empty(), "{} has no output", graph.name);
  auto executor = std::make_unique<GraphExecutor>(std::move(graph), weights, cache, limits, options);
  if (Status s = executor->initialise(); !s) return s.error();
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace latent::exec
