// SPDX-License-Identifier: Apache-2.0
// Runs a graph's prologue once, at load: constants that depend on weights alone.
#pragma once

#include "exec/bind.h"
#include "graph/weights.h"

namespace latent::exec {

// Fills `views` for every weight and every folded value. What a node computes is stored in `weights` under
// the value's name, so that a second executor of the same model finds it there and computes nothing again.
Status run_prologue(const graph::Graph& graph, graph::WeightStore* weights, int num_threads,
                    ValueViews* views);

}  // namespace latent::exec
