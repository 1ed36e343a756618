// SPDX-License-Identifier: Apache-2.0
// The verifier: run after every pass.
#pragma once

#include "base/result.h"
#include "graph/ir.h"

namespace latent::graph {

// A value is defined once and before its use; shapes obey infer_dims; ids are i32; names are unique; the
// prologue reads only weights; a cache is read in its newest version. The error names the node.
Status verify(const Graph& graph);

}  // namespace latent::graph
