// SPDX-License-Identifier: Apache-2.0
// Memory of split requests: partial states in the workspace, arrival counters in the plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "attention/backends/cuda_common/decode_params.h"

namespace latent::attention::cuda {

struct SplitShape {
  int num_parts = 0;
  int num_row_tiles = 0;
  int rows = 0;          // of a row tile
  int width = 0;         // kv_rank
  int state_floats = 1;  // kept of a row beside its outputs
};

// A part holds at most the end of one cut request and the beginning of another.
inline constexpr int kSlotsPerPart = 2;

// One part alone cuts nothing.
size_t split_bytes(const SplitShape& shape);
// CHECKs that the workspace is large enough.
void carve_split_memory(const SplitShape& shape, std::span<std::byte> workspace, DecodeParams* params);

// Counters for any shape on this device, zero. They are the plan's, not scratch: kernels leave them zero.
std::shared_ptr<void> create_arrival_counters();

}  // namespace latent::attention::cuda
