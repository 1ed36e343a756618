// SPDX-License-Identifier: Apache-2.0
// Memory by live range: two buffers share bytes when no node needs both.
#pragma once

#include <cstdint>
#include <vector>

namespace latent::exec {

// A buffer that must hold its bytes from node `first` (which writes it) to node `last` (the last reader),
// both included.
struct LiveRange {
  int first = 0;
  int last = 0;
  int64_t bytes = 0;
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // one a range, multiples of the alignment
  int64_t total_bytes = 0;
};

// Greedy by size, each buffer at the lowest offset that is free during its life. Within 64-byte lines.
MemoryPlan plan_memory(const std::vector<LiveRange>& ranges);

}  // namespace latent::exec
