// SPDX-License-Identifier: Apache-2.0
// What passes share.
#pragma once

#include <vector>

#include "graph/ir.h"

namespace latent::graph {

// Index of the node that computes each value, -1 for none; and how often each is read (graph outputs count).
struct Uses {
  std::vector<int> producer;
  std::vector<int> num_uses;
};
Uses find_uses(const Graph& graph);

// A new intermediate.
ValueId add_value(Graph& graph, std::string name, DType dtype, Dims dims, ValueId alias_of = kNoValue);

// Removes the nodes marked in `dead` (one flag a node), keeping the order.
void erase_nodes(std::vector<Node>& nodes, const std::vector<bool>& dead);

}  // namespace latent::graph
