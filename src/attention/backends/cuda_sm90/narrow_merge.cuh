// SPDX-License-Identifier: Apache-2.0
// The narrow decode kernel's end of a stretch: outputs of groups, CTAs and pieces become rows.
#pragma once

#include <cmath>

#include "attention/backends/cuda_sm90/narrow_cta.cuh"

namespace latent::attention::cuda {

// Boxes kFirst .. kFirst + kOwnBoxes - 1 from one group to the other, which adds them to its own.
template <class T, class Config>
template <bool kWriter, int kFirst>
__device__ void NarrowCta<T, Config>::pass_boxes() {
  const int thread = threadIdx.x % Config::kGroupThreads;
  float4* scratch = reinterpret_cast<float4*>(query_) + thread;
#pragma unroll
  for (int b = kFirst; b < kFirst + Config::kOwnBoxes; ++b)
#pragma unroll
    for (int i = 0; i < Config::kScores; i += 4) {
      float4* at = scratch + ((b - kFirst) * (Config::kScores / 4) + i / 4) * Config::kGroupThreads;
      if constexpr (kWriter) {
        *at = make_float4(out_[b][i], out_[b][i + 1], out_[b][i + 2], out_[b][i + 3]);
      } else {
        const float4 x = *at;
        out_[b][i] += x.x;
        out_[b][i + 1] += x.y;
        out_[b][i + 2] += x.z;
        out_[b][i + 3] += x.w;
      }
    }
}

template <class T, class Config>
__device__ void NarrowCta<T, Config>::join_groups() {
#pragma unroll
  for (int c = 0; c < Config::kColumns; ++c) {
    float sum = sum_[c];
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 4);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 8);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 16);
    if (lane_ < 4) {
      reinterpret_cast<float*>(&small_.warp_sum[group()][local_row(c)])[warp_ % 4] = sum;
      if (warp_ % 4 == 0) small_.group_max[group()][local_row(c)] = max_[c];
    }
  }
  consumer_sync();  // maxima and sums: all to all; both groups are done with the query
  float factor[Config::kColumns];
#pragma unroll
  for (int c = 0; c < Config::kColumns; ++c) {
    const int r = local_row(c);
    const float a = small_.group_max[0][r], b = small_.group_max[1][r];
    const float4 x = small_.warp_sum[0][r], y = small_.warp_sum[1][r];
    const float largest = fmaxf(a, b);
    const float base = largest == -INFINITY ? 0.0f : largest;
    const float sum = ((x.x + x.y) + (x.z + x.w)) * ptx::exp2_approx(a - base) +
                      ((y.x + y.y) + (y.z + y.w)) * ptx::exp2_approx(b - base);
    factor[c] = sum > 0 ? ptx::exp2_approx(max_[c] - base) / sum : 0.0f;
    if (warp_ == 0 && lane_ < 4) small_.lse[r] = sum > 0 ? base + log2f(sum) : -INFINITY;
  }
#pragma unroll
  for (int b = 0; b < Config::kValueBoxes; ++b)
#pragma unroll
    for (int i = 0; i < Config::kScores; ++i) out_[b][i] *= factor[i / 4 * 2 + i % 2];
  if (group() == 1) pass_boxes<true, 0>();
  consumer_sync();
  if (group() == 0) pass_boxes<false, 0>();
  consumer_sync();
  if (group() == 0) pass_boxes<true, Config::kOwnBoxes>();
  consumer_sync();
  if (group() == 1) {
    pass_boxes<false, Config::kOwnBoxes>();
    // From here on each group's boxes are its first ones.
#pragma unroll
    for (int b = 0; b < Config::kOwnBoxes; ++b)
#pragma unroll
      for (int i = 0; i < Config::kScores; ++i) out_[b][i] = out_[b + Config::kOwnBoxes][i];
  }
  consumer_sync();  // the query's memory is free
}

// Puts the output where the cluster sees it, in boxes that the feeder lends, and waits until all have done
// so.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::share_out() {
  Cursor cursor = cursor_;
  for (int b = 0; b < Config::kExchangeBoxes; ++b, cursor.skip(1))
    ptx::mbarrier_wait(&small_.full[cursor.slot], cursor.phase);
  constexpr int kOwnQuads = Config::kQuads / Config::kGroups;
#pragma unroll
  for (int b = 0; b < Config::kOwnBoxes; ++b)
#pragma unroll
    for (int i = 0; i < Config::kScores; i += 4) {
      const int quad = group() * kOwnQuads + (b * (Config::kScores / 4) + i / 4) * Config::kGroupThreads +
                       threadIdx.x % Config::kGroupThreads;
      *exchange_quad(cursor_.slot, quad) =
          make_float4(out_[b][i], out_[b][i + 1], out_[b][i + 2], out_[b][i + 3]);
    }
  if (threadIdx.x == 0) small_.exchange_slot = cursor_.slot;
  consumer_sync();  // outputs and LSEs: all to the arriving threads
  if (threadIdx.x < cluster_) ptx::mbarrier_arrive_peer(ptx::peer_address(&small_.shared_out, threadIdx.x));
  ptx::mbarrier_wait_cluster(&small_.shared_out, exchanges_ % 2);
  if (threadIdx.x < cluster_)
    small_.peer_slot[threadIdx.x] = ptx::load_peer_int(ptx::peer_address(&small_.exchange_slot, threadIdx.x));
}

// Gives the boxes back once every CTA has read what it needs.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::end_sharing() {
  ptx::fence_async_shared();  // the boxes go back to the copy engine
  consumer_sync();            // all have read
  if (threadIdx.x < cluster_) ptx::mbarrier_arrive_peer(ptx::peer_address(&small_.read_out, threadIdx.x));
  ptx::mbarrier_wait_cluster(&small_.read_out, exchanges_ % 2);
  ++exchanges_;
  if (group() == 0) release(cursor_, Config::kExchangeBoxes);
  cursor_.skip(Config::kExchangeBoxes);
}

template <class T, class Config>
__device__ void NarrowCta<T, Config>::store_own(float4* partial) {
  constexpr int kOwnQuads = Config::kQuads / Config::kGroups;
#pragma unroll
  for (int b = 0; b < Config::kOwnBoxes; ++b)
#pragma unroll
    for (int i = 0; i < Config::kScores; i += 4)
      __stcg(partial + group() * kOwnQuads + (b * (Config::kScores / 4) + i / 4) * Config::kGroupThreads +
                 threadIdx.x % Config::kGroupThreads,
             make_float4(out_[b][i], out_[b][i + 1], out_[b][i + 2], out_[b][i + 3]));
}

// Says that this piece's state is out. True for the CTA that comes last, which then sees all of them.
template <class T, class Config>
__device__ bool NarrowCta<T, Config>::arrive_last(const Pieces& pieces) {
  __threadfence();
  consumer_sync();  // every thread's part is out before the counter says so
  if (threadIdx.x == 0) {
    int32_t* counter = p_.arrived + state_of(pieces, 0) * cluster_ + rank_;
    const int before = atomicAdd(counter, 1);
    if (before == pieces.count - 1) *counter = 0;  // nobody looks at it again in this launch
    small_.flag = before == pieces.count - 1;
    __threadfence();
  }
  consumer_sync();  // the flag: the leader to all
  return small_.flag != 0;
}

// Weights of the states, row by row, and the LSE of their union. Total: empty with empty is empty.
template <class T, class Config>
template <class LoadLse>
__device__ void NarrowCta<T, Config>::weigh(int num_states, const LoadLse& load_lse) {
  float* weights = reinterpret_cast<float*>(query_);  // [state][row]
  for (int r = warp_; r < Config::kRows; r += Config::kConsumers / 32) {
    float largest = -INFINITY;
    for (int s = lane_; s < num_states; s += 32) {
      const float lse = load_lse(s, r);
      weights[s * Config::kRows + r] = lse;
      largest = fmaxf(largest, lse);
    }
    for (int d = 1; d < 32; d *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, d));
    const float base = largest == -INFINITY ? 0.0f : largest;
    float sum = 0;
    for (int s = lane_; s < num_states; s += 32) sum += exp2f(weights[s * Config::kRows + r] - base);
    for (int d = 1; d < 32; d *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
    const float factor = sum > 0 ? 1.0f / sum : 0.0f;
    for (int s = lane_; s < num_states; s += 32)
      weights[s * Config::kRows + r] = exp2f(weights[s * Config::kRows + r] - base) * factor;
    if (lane_ == 0) small_.merged_lse[r] = sum > 0 ? base + log2f(sum) : -INFINITY;
  }
  consumer_sync();  // weights: all to all
}

// Rows of a quad: these two, each at two columns.
template <class Config>
__device__ inline int quad_row(int quad) {
  return quad / Config::kGroupThreads % (Config::kRows / 8) * 8 + quad % 4 * 2;
}

template <class T, class Config>
template <class LoadQuad>
__device__ float4 NarrowCta<T, Config>::combine(int num_states, int quad, const LoadQuad& load_quad) const {
  const float* weights = reinterpret_cast<const float*>(query_) + quad_row<Config>(quad);
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
  for (int s = 0; s < num_states; ++s) {
    const float4 x = load_quad(s);
    const float2 w = *reinterpret_cast<const float2*>(weights + s * Config::kRows);
    sum.x = fmaf(x.x, w.x, sum.x);
    sum.y = fmaf(x.y, w.y, sum.y);
    sum.z = fmaf(x.z, w.x, sum.z);
    sum.w = fmaf(x.w, w.y, sum.w);
  }
  return sum;
}

// First the CTAs of the cluster, through their shared memory; then, if the request was cut, its pieces,
// through global memory, by the cluster that comes last (each CTA of it for its share). The order of the sums
// is that of the keys, whoever comes when.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::merge(const Pieces& pieces) {
  const int64_t mine = state_of(pieces, part_ - pieces.first_part);
  const auto partial = [&](int64_t state) {
    return reinterpret_cast<float4*>(p_.partial_out) + state * Config::kQuads;
  };
  const float* lse = small_.lse;
  if (cluster_ > 1) {
    share_out();
    weigh(cluster_, [&](int s, int r) { return ptx::load_peer_float(ptx::peer_address(&small_.lse[r], s)); });
    lse = small_.merged_lse;
    for_each_quad([&](int quad) {
      const float4 x = combine(cluster_, quad, [&](int s) {
        return ptx::load_peer_float4(ptx::peer_address(exchange_quad(small_.peer_slot[s], quad), s));
      });
      if (pieces.count == 1)
        write_quad(quad, x);
      else
        __stcg(partial(mine) + quad, x);
    });
    if (pieces.count > 1 && threadIdx.x < Config::kRows)
      __stcg(p_.partial_lse + mine * Config::kRows + threadIdx.x, lse[threadIdx.x]);
    if (pieces.count == 1) write_lse(lse);
    end_sharing();
    if (pieces.count == 1) return;
  } else {
    store_own(partial(mine));
    if (threadIdx.x < Config::kRows)
      __stcg(p_.partial_lse + mine * Config::kRows + threadIdx.x, lse[threadIdx.x]);
  }
  if (!arrive_last(pieces)) return;
  weigh(pieces.count,
        [&](int s, int r) { return __ldcg(p_.partial_lse + state_of(pieces, s) * Config::kRows + r); });
  for_each_quad([&](int quad) {
    write_quad(quad, combine(pieces.count, quad,
                             [&](int s) { return __ldcg(partial(state_of(pieces, s)) + quad); }));
  });
  write_lse(small_.merged_lse);
  consumer_sync();  // the query's memory is free
}

template <class T, class Config>
__device__ void NarrowCta<T, Config>::write_quad(int quad, const float4& x) {
  const int box = quad / (Config::kGroupThreads * (Config::kRows / 8)), thread = quad % Config::kGroupThreads;
  const int column = box * Config::kBoxColumns + thread / 32 * 16 + thread % 32 / 4;
  const float values[2][2] = {{x.x, x.z}, {x.y, x.w}};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int r = row(quad_row<Config>(quad) + i);
    if (r >= num_rows_) continue;
    T* to = static_cast<T*>(p_.out) + (q_start_ + r / p_.num_heads) * p_.out_token_stride +
            r % p_.num_heads * p_.out_head_stride + column;
    to[0] = from_float<T>(values[i][0]);
    to[8] = from_float<T>(values[i][1]);
  }
}

template <class T, class Config>
__device__ void NarrowCta<T, Config>::write_lse(const float* lse) {
  const int r = row(threadIdx.x);
  if (p_.lse == nullptr || rank_ != 0 || threadIdx.x >= Config::kRows || r >= num_rows_) return;
  p_.lse[(q_start_ + r / p_.num_heads) * p_.lse_token_stride + r % p_.num_heads * p_.lse_head_stride] =
      lse[threadIdx.x] * kLn2;
}

// Through shared memory, rows of the output one after the other, so that global memory sees whole lines.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::write_rows() {
  constexpr int kPitch = Config::kRank * 2 + 16;  // no two rows of a matrix in one bank
  static_assert(Config::kRows * kPitch <= (Config::kBoxes + Config::kGroups) * Config::kQueryBoxBytes);
#pragma unroll
  for (int b = 0; b < Config::kOwnBoxes; ++b)
#pragma unroll
    for (int j = 0; j < Config::kRows / 8; j += 2) {
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = (j + i / 2) * 4 + i % 2 * 2;
        packed[i] = pack<T>(out_[b][at], out_[b][at + 1]);
      }
      const int local = (j + lane_ / 16) * 8 + lane_ % 8;
      const int column =
          (group() * Config::kOwnBoxes + b) * Config::kBoxColumns + warp_ % 4 * 16 + lane_ / 8 % 2 * 8;
      ptx::stmatrix_x4_trans(query_ + local * kPitch + column * 2, packed);
    }
  consumer_sync();  // the rows: all to all
  constexpr int kChunks = Config::kRank / 8;
  for (int i = threadIdx.x; i < Config::kRows * kChunks; i += Config::kConsumers) {
    const int local = i / kChunks, chunk = i % kChunks;
    if (row(local) >= num_rows_) break;
    const int64_t token = q_start_ + row(local) / p_.num_heads, head = row(local) % p_.num_heads;
    *reinterpret_cast<uint4*>(static_cast<T*>(p_.out) + token * p_.out_token_stride +
                              head * p_.out_head_stride + chunk * 8) =
        *reinterpret_cast<const uint4*>(query_ + local * kPitch + chunk * 16);
  }
  write_lse(small_.lse);
  consumer_sync();  // the query's memory and the LSEs are free
}

}  // namespace latent::attention::cuda
