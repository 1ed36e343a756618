// SPDX-License-Identifier: Apache-2.0
// Rows of nobody, written by every prefill kernel.
#pragma once

#include <cmath>

#include "attention/backends/cuda_common/prefill_params.h"

namespace latent::attention::cuda {

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
