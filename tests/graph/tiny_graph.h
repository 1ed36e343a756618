// SPDX-License-Identifier: Apache-2.0
// One decoder layer with everything the passes look for, small enough to read.
#pragma once

#include "graph/ir.h"

namespace latent::testing {

// `dtype` is that of weights, activations and cache.
graph::Graph tiny_graph(DType dtype = DType::kBF16);

// Compares with tests/golden/graph/<name>; LATENT_UPDATE_GOLDEN=1 writes the file instead.
void expect_golden(const std::string& name, const std::string& text);

}  // namespace latent::testing
