// SPDX-License-Identifier: Apache-2.0
// The ring of boxes that the copy engine fills, and how a box lies in shared memory.
#pragma once

namespace latent::attention::cuda {

// Position in the ring of boxes.
template <int kSlots>
struct RingCursor {
  int slot = 0;
  int phase = 0;
  __device__ void skip(int boxes) {
    slot += boxes;
    if (slot >= kSlots) {
      slot -= kSlots;
      phase ^= 1;
    }
  }
};

// Address of 16-byte chunk `chunk` of row `row` in an atom of 128-byte rows under the 128-byte swizzle.
__device__ inline int swizzled(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

}  // namespace latent::attention::cuda
