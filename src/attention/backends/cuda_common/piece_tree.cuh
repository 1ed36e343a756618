// SPDX-License-Identifier: Apache-2.0
// Merging the pieces of a request that was cut: a binary tree over them. The state of a group of pieces lives
// in the slot of its first piece. At the node that joins the groups of pieces [a, b) and [b, c) the first CTA
// to arrive leaves its state and is done; the second takes it over. The order of the sums is fixed by the
// pieces, not by who arrives when.
#pragma once

#include "attention/backends/cuda_common/partition.cuh"
#include "prim/ptx_sm80.cuh"

namespace latent::attention::cuda {

// Called by all threads that hold the state, one of them the leader. `arrived` is this row tile's counter of
// slot 0, `stride` the distance to the next slot's; `flag` is shared memory. Steps: store(slot) writes this
// CTA's state there, merge(slot, mine_is_left) takes over what is there, sync() is a barrier of the threads.
// True if this CTA holds the whole at the end.
template <class Steps>
__device__ inline bool climb_tree(const Pieces& pieces, int part, int32_t* arrived, int stride,
                                  bool is_leader, int32_t* flag, Steps& steps) {
  const int piece = part - pieces.first_part;
  for (int width = 1; width < pieces.count; width *= 2) {
    const int group = piece / (2 * width) * (2 * width), middle = group + width;
    if (middle >= pieces.count) continue;  // nobody on the right
    const bool is_left = piece < middle;
    steps.store(slot_of(pieces, is_left ? group : middle));
    ptx::fence_gpu();
    steps.sync();  // every thread's state is out before the counter says so
    if (is_leader) {
      int32_t* counter = arrived + int64_t{slot_of(pieces, middle)} * stride;
      const int before = atomicAdd(counter, 1);
      if (before == 1) *counter = 0;  // nobody looks at it again in this launch
      *flag = before;
      ptx::fence_gpu();
    }
    steps.sync();  // the flag: the leader to all
    if (*flag == 0) return false;
    steps.merge(slot_of(pieces, is_left ? middle : group), is_left);
    steps.sync();  // what merge left in shared memory, to the next level; the flag is read
  }
  return true;
}

}  // namespace latent::attention::cuda
