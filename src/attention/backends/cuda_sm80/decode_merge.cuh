// SPDX-License-Identifier: Apache-2.0
// The portable decode kernel's end of a stretch: pieces of requests meet in a tree, outputs become rows.
#pragma once

#include "attention/backends/cuda_common/piece_tree.cuh"
#include "attention/backends/cuda_sm80/decode_cta.cuh"

namespace latent::attention::cuda {

template <class T, class Config>
__device__ void DecodeCta<T, Config>::store_partial(int slot) {
  const int64_t at = int64_t{slot} * p_.num_row_tiles + row_tile_;
  float* to = p_.partial_out + at * Config::kRows * Config::kRank + threadIdx.x * 4;
#pragma unroll
  for (int m = 0; m < Config::kRowTiles; ++m)
#pragma unroll
    for (int n = 0; n < Config::kValueTiles; ++n)
      __stcg(reinterpret_cast<float4*>(to + (m * Config::kValueTiles + n) * Config::kThreads * 4),
             make_float4(out_[m][n][0], out_[m][n][1], out_[m][n][2], out_[m][n][3]));
  if (threadIdx.x < Config::kRows)
    __stcg(p_.partial_lse + at * Config::kRows + threadIdx.x, shared_.row_max[threadIdx.x]);
}

// out_ and row_max become the union of this CTA's state with the one in `slot`. Total: empty with empty is
// empty.
template <class T, class Config>
__device__ void DecodeCta<T, Config>::load_and_merge(int slot, bool mine_is_left) {
  const int64_t at = int64_t{slot} * p_.num_row_tiles + row_tile_;
  if (threadIdx.x < Config::kRows) {
    const float mine = shared_.row_max[threadIdx.x];
    const float other = __ldcg(p_.partial_lse + at * Config::kRows + threadIdx.x);
    const float largest = fmaxf(mine, other);
    const float base = largest == -INFINITY ? 0.0f : largest;
    const float a = expf(mine - base), b = expf(other - base);
    const float sum = a + b;
    shared_.rescale[threadIdx.x] = sum > 0 ? a / sum : 0.0f;
    shared_.row_sum[threadIdx.x] = sum > 0 ? b / sum : 0.0f;
    shared_.row_max[threadIdx.x] = sum > 0 ? base + logf(sum) : -INFINITY;
  }
  __syncthreads();  // factors: row threads to all
  const float* from = p_.partial_out + at * Config::kRows * Config::kRank + threadIdx.x * 4;
#pragma unroll
  for (int m = 0; m < Config::kRowTiles; ++m) {
    const int low = m * 16 + lane_ / 4, high = low + 8;
    const float mine_low = shared_.rescale[low], mine_high = shared_.rescale[high];
    const float other_low = shared_.row_sum[low], other_high = shared_.row_sum[high];
#pragma unroll
    for (int n = 0; n < Config::kValueTiles; ++n) {
      const float4 x = __ldcg(
          reinterpret_cast<const float4*>(from + (m * Config::kValueTiles + n) * Config::kThreads * 4));
      out_[m][n][0] = join(out_[m][n][0], mine_low, x.x, other_low, mine_is_left);
      out_[m][n][1] = join(out_[m][n][1], mine_low, x.y, other_low, mine_is_left);
      out_[m][n][2] = join(out_[m][n][2], mine_high, x.z, other_high, mine_is_left);
      out_[m][n][3] = join(out_[m][n][3], mine_high, x.w, other_high, mine_is_left);
    }
  }
}

template <class T, class Config>
__device__ void DecodeCta<T, Config>::merge_pieces(const Pieces& pieces) {
  struct Steps {
    DecodeCta& cta;
    __device__ void store(int slot) { cta.store_partial(slot); }
    __device__ void merge(int slot, bool mine_is_left) { cta.load_and_merge(slot, mine_is_left); }
    __device__ void sync() { __syncthreads(); }
  } steps{*this};
  if (climb_tree(pieces, part_, p_.arrived + row_tile_, p_.num_row_tiles, threadIdx.x == 0, &shared_.flag,
                 steps))
    write_rows();
}

template <class T, class Config>
__device__ void DecodeCta<T, Config>::write_row(int local, int column, float a, float b) {
  if (row(local) >= num_rows_) return;
  const int64_t token = q_start_ + row(local) / p_.num_heads, head = row(local) % p_.num_heads;
  T* to = static_cast<T*>(p_.out) + token * p_.out_token_stride + head * p_.out_head_stride + column;
  struct alignas(4) Pair {
    T a, b;
  };
  *reinterpret_cast<Pair*>(to) = Pair{from_float<T>(a), from_float<T>(b)};
}

template <class T, class Config>
__device__ void DecodeCta<T, Config>::write_rows() {
#pragma unroll
  for (int m = 0; m < Config::kRowTiles; ++m)
#pragma unroll
    for (int n = 0; n < Config::kValueTiles; ++n) {
      const int local = m * 16 + lane_ / 4, first = (warp_ * Config::kValueTiles + n) * 8;
      if constexpr (Config::kHasCodes) {
        // Tiles come in twos, the even columns of 16 and the odd ones.
        if (n % 2 != 0) continue;
        const int column = first + lane_ % 4 * 4;
        const float(&even)[4] = out_[m][n];
        const float(&odd)[4] = out_[m][n + 1];
        write_row(local, column, even[0], odd[0]);
        write_row(local, column + 2, even[1], odd[1]);
        write_row(local + 8, column, even[2], odd[2]);
        write_row(local + 8, column + 2, even[3], odd[3]);
      } else {
        write_row(local, first + lane_ % 4 * 2, out_[m][n][0], out_[m][n][1]);
        write_row(local + 8, first + lane_ % 4 * 2, out_[m][n][2], out_[m][n][3]);
      }
    }
  if (p_.lse == nullptr || threadIdx.x >= Config::kRows || row(threadIdx.x) >= num_rows_) return;
  const int r = row(threadIdx.x);
  p_.lse[(q_start_ + r / p_.num_heads) * p_.lse_token_stride + r % p_.num_heads * p_.lse_head_stride] =
      shared_.row_max[threadIdx.x];
}

}  // namespace latent::attention::cuda
