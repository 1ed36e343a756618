// SPDX-License-Identifier: Apache-2.0
// A graph as text (one line a node, stable, for golden tests), as DOT, and as an SVG that needs no other
// tool.
#pragma once

#include <string>

#include "graph/ir.h"

namespace latent::graph {

std::string print_text(const Graph& graph);
std::string print_dot(const Graph& graph);
// Decoder layers of the same structure are drawn once, with the range they stand for.
std::string print_svg(const Graph& graph);

}  // namespace latent::graph
