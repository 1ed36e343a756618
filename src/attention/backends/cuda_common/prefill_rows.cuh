// SPDX-License-Identifier: Apache-2.0
// What prefill kernels share at the edges of a row: its running maximum, its way to memory, rows of nobody.
#pragma once

#include <cmath>

#include "attention/backends/cuda_common/prefill_params.h"

namespace latent::attention::cuda {

// Rows keep their maximum until one outgrows it by this much in base 2: the weights stay far from overflow in
// fp16, too, and outputs are seldom rescaled. Each row decides for itself, so that its bits do not depend on
// its neighbours.
inline constexpr float kMaxSlack = 8;

// Swaps registers among four neighbouring lanes: register i of lane q comes from register q of lane i.
__device__ inline void transpose_quad(uint32_t (&x)[4]) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = lane & bit;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int low = bit == 1 ? 2 * pair : pair, high = low + bit;
      const uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, upper ? x[low] : x[high], bit);
      x[low] = upper ? got : x[low];
      x[high] = upper ? x[high] : got;
    }
  }
}

// Contract C1: rows past the last request's are written, too: zeros and -inf. By the threads of all CTAs.
__device__ inline void write_padded_rows(const PrefillParams& p, int v_dim, int thread, int num_threads) {
  const int element = p.out_is_f32 ? 4 : 2, chunks = v_dim * element / 16;
  for (int64_t token = p.q_starts[p.num_seqs] + blockIdx.x; token < p.num_tokens; token += gridDim.x) {
    for (int i = thread; i < p.num_heads * chunks; i += num_threads) {
      const int64_t at = token * p.out_token_stride + i / chunks * p.out_head_stride;
      unsigned char* row = static_cast<unsigned char*>(p.out) + at * element;
      *reinterpret_cast<uint4*>(row + i % chunks * 16) = make_uint4(0, 0, 0, 0);
    }
    if (p.lse != nullptr)
      for (int head = thread; head < p.num_heads; head += num_threads)
        p.lse[token * p.lse_token_stride + head * p.lse_head_stride] = -INFINITY;
  }
}

}  // namespace latent::attention::cuda
