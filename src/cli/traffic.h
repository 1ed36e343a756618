// SPDX-License-Identifier: Apache-2.0
// The bytes that one generated token must read: what its speed is judged by.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/ceilings.h"
#include "graph/ir.h"
#include "graph/weights.h"

namespace latent::cli {

// Weights and scales that a decode graph reads for one token: of the embedding and of the rope table a row,
// of routed experts the chosen ones, of everything else all. The cache is not in it.
int64_t decode_weight_bytes(const graph::Graph& graph, const graph::WeightStore& weights);

// The memory of the weights that a decode graph reads, for a plain read of the same bytes.
std::vector<ByteRegion> weight_regions(const graph::Graph& graph, const graph::WeightStore& weights);

}  // namespace latent::cli
