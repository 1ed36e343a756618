// SPDX-License-Identifier: Apache-2.0
// Shape rules of the graph: what the builder computes and the verifier checks. The same rules as ops/ has for
// concrete shapes, over symbols.
#pragma once

#include <vector>

#include "base/result.h"
#include "graph/ir.h"

namespace latent::graph {

// The shapes of a node's outputs, from its inputs; an error that names the operand that does not fit. A
// reshape's shape is its own choice and must already stand in its output value.
Result<std::vector<Dims>> infer_dims(const Graph& graph, const Node& node);

}  // namespace latent::graph
