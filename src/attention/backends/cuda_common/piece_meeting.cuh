// SPDX-License-Identifier: Apache-2.0
// CTAs with pieces of one request find out who merges what. The merge is cut into shares; those whose stretch
// ends with their piece wait for the others and then take a share each:
//
//   part 0   ... |stream|leave|wait|share 0 of all pieces|
//   part 1   ... |stream  |leave|..|share 1 of all pieces|
//   part 2   ... |stream|leave| next request's stream ...        it has more to do: it only leaves its piece
//
// Nobody relies on anybody to run at the same time: whoever waited too long goes away, and the last to leave
// a piece, who sees them all, takes the shares that nobody took. The order of the sums is fixed by the
// pieces, not by who merges.
#pragma once

#include <cstdint>

#include "prim/ptx_sm80.cuh"

namespace latent::attention::cuda {

struct Meeting {
  int first_share, end_share;  // this CTA's
  int counted;                 // for leave_meeting
};

// Whether the last piece came in time.
__device__ inline bool wait_for_pieces(int32_t* counter, int count, int64_t patience) {
  const int64_t start = clock64();
  int now;
  do {
    now = ptx::load_acquire(counter);
    if ((now & 0xFFFF) >= count) return true;
  } while (clock64() - start < patience);
  for (;;) {
    const int seen = atomicCAS(counter, now, now + 0x10000);
    if (seen == now) return false;
    ptx::fence_gpu();
    now = seen;
    if ((now & 0xFFFF) >= count) return true;
  }
}

// By one thread, after a barrier of those that left piece `piece` of `count` in global memory. The counter
// counts the pieces that have come, and then the CTAs that waited and saw them all, in its lower half; those
// who gave up in the upper one.
__device__ inline Meeting meet_pieces(int32_t* counter, int piece, int count, int shares, int64_t patience) {
  Meeting m{.first_share = piece, .end_share = piece < shares ? piece + 1 : piece, .counted = 0};
  ptx::fence_gpu();
  m.counted = atomicAdd(counter, 1) + 1;
  if ((m.counted & 0xFFFF) == count) {
    ptx::fence_gpu();
    if (m.counted >> 16 != 0) m.first_share = 0, m.end_share = shares;
  } else if (m.first_share >= m.end_share || !wait_for_pieces(counter, count, patience)) {
    m.counted = 0;
    m.end_share = m.first_share;
  }
  if (m.counted != 0 && piece < shares) m.counted = atomicAdd(counter, 1) + 1;
  return m;
}

// By the same thread, when its CTA has merged its shares. The last of those who look at the counter clears
// it: all pieces came, and none waits who did not give up.
__device__ inline void leave_meeting(int32_t* counter, const Meeting& m, int count, int shares) {
  if (m.counted != 0 && (m.counted & 0xFFFF) + (m.counted >> 16) == count + shares) *counter = 0;
}

}  // namespace latent::attention::cuda
