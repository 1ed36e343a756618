// SPDX-License-Identifier: Apache-2.0
#include "graph/verify.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/infer.h"

namespace latent::graph {
namespace {

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph), defined_(graph.values.size(), false) {}

  Status run() {
    if (Status s = check_names(); !s) return s;
    for (size_t i = 0; i < graph_.values.size(); ++i)
      defined_[i] = graph_.values[i].kind != ValueKind::kIntermediate;
    for (const Node& node : graph_.prologue)
      if (Status s = check_node(node, true); !s) return s;
    for (const Node& node : graph_.nodes)
      if (Status s = check_node(node, false); !s) return s;
    for (const ValueId id : graph_.outputs)
      if (!valid(id) || !defined_[static_cast<size_t>(id)])
        return make_error(ErrorCode::kInvalidArgument, "{}: output {} is never computed", graph_.name, id);
    return {};
  }

 private:
  bool valid(ValueId id) const { return id >= 0 && static_cast<size_t>(id) < graph_.values.size(); }

  Error fail(const Node& node, const std::string& message) const {
    return make_error(ErrorCode::kInvalidArgument, "{}: {}: {}", graph_.name, describe(node), message);
  }

  Status check_names() const {
    std::set<std::string> names;
    for (const Value& v : graph_.values)
      if (!names.insert(v.name).second)
        return make_error(ErrorCode::kInvalidArgument, "{}: two values named {}", graph_.name, v.name);
    return {};
  }

  Status check_node(const Node& node, bool in_prologue) {
    for (const ValueId id : node.inputs) {
      if (!valid(id) || !defined_[static_cast<size_t>(id)])
        return fail(node, fmt::format("reads value {} before it is computed", id));
      const Value& v = graph_.value(id);
      if (in_prologue && v.kind != ValueKind::kWeight && folded_.count(id) == 0)
        return fail(node, fmt::format("the prologue reads {}, which is no weight", v.name));
      if (Status s = check_version(node, id); !s) return s;
    }
    for (const ValueId id : node.outputs)
      if (Status s = define(node, id, in_prologue); !s) return s;
    return check_shapes(node);
  }

  // Every write of a cache makes a new version; older ones must not be read afterwards.
  Status check_version(const Node& node, ValueId id) const {
    const auto newest = versions_.find(graph_.root(id));
    if (newest == versions_.end() || newest->second == id) return {};
    return fail(node, fmt::format("reads {}, an old version of a cache", graph_.value(id).name));
  }

  Status define(const Node& node, ValueId id, bool in_prologue) {
    if (!valid(id) || defined_[static_cast<size_t>(id)])
      return fail(node, fmt::format("value {} is computed twice", id));
    defined_[static_cast<size_t>(id)] = true;
    if (in_prologue) folded_.insert(id);
    const ValueId root = graph_.root(id);
    if (graph_.value(root).kind == ValueKind::kCache) versions_[root] = id;
    return {};
  }

  Status check_shapes(const Node& node) const {
    const Result<std::vector<Dims>> dims = infer_dims(graph_, node);
    if (!dims) return dims.error().with_context(graph_.name);
    if (dims->size() != node.outputs.size()) return fail(node, "wrong number of outputs");
    for (size_t i = 0; i < dims->size(); ++i)
      if (graph_.value(node.outputs[i]).dims != (*dims)[i])
        return fail(node, fmt::format("output {} is {}, should be {}", i,
                                      to_string(graph_.value(node.outputs[i]).dims), to_string((*dims)[i])));
    if (node.op == OpKind::kRouter && graph_.value(node.outputs[1]).dtype != DType::kI32)
      return fail(node, "expert ids must be i32");
    return {};
  }

  const Graph& graph_;
  std::vector<bool> defined_;
  std::set<ValueId> folded_;
  std::map<ValueId, ValueId> versions_;  // cache -> its newest version
};

}  // namespace

Status verify(const Graph& graph) { return Verifier(graph).run(); }

}  // namespace latent::graph
