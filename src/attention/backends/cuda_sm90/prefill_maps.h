// SPDX-License-Identifier: Apache-2.0
// The descriptions of a prefill's operands that the copy engine reads.
#pragma once

#include <cuda.h>

#include "attention/backends/cuda_common/prefill_params.h"
#include "tensor/dtype.h"

namespace latent::attention::cuda {

// Each operand [rows, heads, width] is described with four coordinates: column, head, y, z, the latter two
// with the rows' stride both, y < box_rows, and the address of y = z = 0 lying box_rows rows before the
// first. A box of box_rows rows from `row` on, of which only the first `live` exist, is the one at y =
// box_rows - live, z = row - y + box_rows: its rows past the live ones have y >= box_rows, so zeros arrive
// and nothing is read. No request's end needs to be masked in shared memory.
struct PrefillMaps {
  CUtensorMap q_nope, q_pe, k_nope, k_pe, v;
  bool k_pe_is_shared;  // by all heads
  int section_keys;     // keys, of all heads together, that are worth keeping in L2 at a time
};

struct PrefillBoxes {
  int query_rows, keys;  // rows a box
  int nope_dim, rope_dim, v_dim;
};

// Boxes of 64 columns under the 128-byte swizzle; columns past the width arrive as zeros.
PrefillMaps make_prefill_maps(const PrefillParams& params, DType dtype, const PrefillBoxes& boxes);

}  // namespace latent::attention::cuda
