// SPDX-License-Identifier: Apache-2.0
// Contract C1: rows of requests without keys and padded rows are written, too: zeros and -inf.
#pragma once

#include <cmath>

#include "attention/backends/cuda_common/decode_params.h"

namespace latent::attention::cuda {

// All CTAs share the rows; `num_threads` threads of each take part, this one is number `thread`. Rows of
// `rank` elements of T, 16 bits each.
template <class T>
__device__ inline void write_empty_rows(const DecodeParams& p, int rank, int thread, int num_threads) {
  const int live_end = p.q_starts[p.num_seqs];
  const int chunks = rank / 8;  // of 16 bytes
  const auto write_token = [&](int64_t token) {
#pragma unroll 1
    for (int i = thread; i < p.num_heads * chunks; i += num_threads)
      *reinterpret_cast<uint4*>(static_cast<T*>(p.out) + token * p.out_token_stride +
                                i / chunks * p.out_head_stride + i % chunks * 8) = make_uint4(0, 0, 0, 0);
    if (p.lse != nullptr)
#pragma unroll 1
      for (int head = thread; head < p.num_heads; head += num_threads)
        p.lse[token * p.lse_token_stride + head * p.lse_head_stride] = -INFINITY;
  };
  for (int token = live_end + static_cast<int>(blockIdx.x); token < p.num_tokens; token += gridDim.x)
    write_token(token);
  for (int seq = static_cast<int>(blockIdx.x); seq < p.num_seqs; seq += gridDim.x)
    if (p.kv_lens[seq] <= 0)
      for (int token = p.q_starts[seq]; token < p.q_starts[seq + 1]; ++token) write_token(token);
}

}  // namespace latent::attention::cuda
