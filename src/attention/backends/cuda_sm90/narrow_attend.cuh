// SPDX-License-Identifier: Apache-2.0
// The narrow decode kernel's main loop: boxes in, outputs of a stretch of tiles in registers.
#pragma once

#include <cmath>

#include "attention/backends/cuda_sm90/narrow_cta.cuh"

namespace latent::attention::cuda {

// --- The copy warp ---

template <class T, class Config>
__device__ void NarrowCta<T, Config>::feed(int first, int last) {
  const int32_t* table = p_.block_table + seq_ * p_.table_stride;
  const int page = p_.page_tokens;
  const int end = share(first, last, rank_ + 1);
  for (int tile = share(first, last, rank_); tile < end; ++tile) {
    const int token = tile * Config::kTokens;
    const int live = min(kv_len_ - token, Config::kTokens);
    feed_tile(tile, page >= Config::kTokens ? 1 : (live + page - 1) / page, table + token / page);
  }
  if (cluster_ == 1) return;
  for (int b = 0; b < Config::kExchangeBoxes;
       ++b, cursor_.skip(1)) {  // lent to the warpgroups, see share_out
    ptx::mbarrier_wait(&small_.empty[cursor_.slot], cursor_.phase ^ 1);
    if (lane_ == 0) ptx::mbarrier_arrive(&small_.full[cursor_.slot]);
  }
}

// `pages` pages that hold keys of the tile, or the part of one that is the tile. Pages past the request's
// last one are neither looked up nor read.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::feed_tile(int tile, int pages, const int32_t* table) {
  const int box_tokens = min(p_.page_tokens, Config::kTokens);
  const int y = tile * Config::kTokens % p_.page_tokens;
  const int32_t id = lane_ < pages ? table[lane_] : 0;
  const uint64_t policy = ptx::evict_first_policy();
  for (int b = 0; b < Config::kBoxes; ++b) {
    uint64_t* full = &small_.full[cursor_.slot];
    ptx::mbarrier_wait(&small_.empty[cursor_.slot], cursor_.phase ^ 1);
    if (lane_ == 0) ptx::mbarrier_arrive_expect(full, pages * box_tokens * Config::kRowBytes);
    __syncwarp();
    if (lane_ < pages)
      ptx::tma_load_3d(box(cursor_.slot) + lane_ * box_tokens * Config::kRowBytes, map_,
                       b * Config::kBoxColumns, y, id, full, policy);
    cursor_.skip(1);
  }
}

// --- The warpgroups ---

template <class T, class Config>
__device__ void NarrowCta<T, Config>::load_query() {
  constexpr int kChunks = Config::kBoxes * 8;
  const T* nope = static_cast<const T*>(p_.q_nope);
  const T* pe = static_cast<const T*>(p_.q_pe);
  for (int i = threadIdx.x; i < Config::kRows * kChunks; i += Config::kConsumers) {
    const int local = i / kChunks, chunk = i % kChunks, column = chunk * 8;
    uint4 x = make_uint4(0, 0, 0, 0);
    if (row(local) < num_rows_ && column < Config::kRank + Config::kRope) {
      const int64_t token = q_start_ + row(local) / p_.num_heads, head = row(local) % p_.num_heads;
      const T* from =
          column < Config::kRank
              ? nope + token * p_.q_nope_token_stride + head * p_.q_nope_head_stride + column
              : pe + token * p_.q_pe_token_stride + head * p_.q_pe_head_stride + column - Config::kRank;
      x = __ldg(reinterpret_cast<const uint4*>(from));
    }
    *reinterpret_cast<uint4*>(query_ + chunk / 8 * Config::kQueryBoxBytes + swizzled(local, chunk % 8)) = x;
  }
  ptx::fence_async_shared();
}

// S^T of the tile at the cursor; waits for its boxes one by one.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::score(float (&s)[Config::kScores], Cursor cursor) {
  const uint64_t query = ptx::matrix_descriptor(query_);
#pragma unroll
  for (int b = 0; b < Config::kBoxes; ++b) {
    ptx::mbarrier_wait(&small_.full[cursor.slot], cursor.phase);
    const uint64_t keys = ptx::matrix_descriptor(box(cursor.slot));
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Config::kBoxColumns; k += 16)
      ptx::wgmma_ss<T, 0>(s, ptx::advance(keys, k * 2),
                          ptx::advance(query, b * Config::kQueryBoxBytes + k * 2), b + k > 0);
    cursor.skip(1);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::pin(s);
}

// Scores become weights, in shared memory; running maxima, sums and the output follow.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::soften(float (&s)[Config::kScores], int tile) {
  const int token = warp_ % 4 * 16 + lane_ / 4;
  const int first_token = tile * Config::kTokens;
  if (first_token + Config::kTokens >
      kv_len_ - q_len_ + 1) {  // rows past the last are masked here alone: nobody reads them
#pragma unroll
    for (int c = 0; c < Config::kColumns; ++c) {
      const int keys = num_keys(local_row(c)) - first_token;
      if (token >= keys) s[c / 2 * 4 + c % 2] = -INFINITY;
      if (token + 8 >= keys) s[c / 2 * 4 + c % 2 + 2] = -INFINITY;
    }
  }
  float4* warp_max = small_.warp_max[group()];
#pragma unroll
  for (int c = 0; c < Config::kColumns; ++c) {
    float m = fmaxf(s[c / 2 * 4 + c % 2], s[c / 2 * 4 + c % 2 + 2]);
    m = fmaxf(m, __shfl_xor_sync(0xFFFFFFFFu, m, 4));
    m = fmaxf(m, __shfl_xor_sync(0xFFFFFFFFu, m, 8));
    m = fmaxf(m, __shfl_xor_sync(0xFFFFFFFFu, m, 16));
    if (lane_ < 4) reinterpret_cast<float*>(&warp_max[local_row(c)])[warp_ % 4] = m;
  }
  group_sync();  // maxima: every warp's to every warp
  const float scale = p_.softmax_scale * kLog2E;
  float rescale[Config::kColumns];
  bool moved = false;
#pragma unroll
  for (int c = 0; c < Config::kColumns; ++c) {
    const float4 w = warp_max[local_row(c)];
    const float largest = fmaxf(max_[c], fmaxf(fmaxf(w.x, w.y), fmaxf(w.z, w.w)) * scale);
    const float base = largest == -INFINITY ? 0.0f : largest;  // a row without keys so far
    rescale[c] = ptx::exp2_approx(max_[c] - base);
    moved |= largest != max_[c];
    max_[c] = largest;
    float& low = s[c / 2 * 4 + c % 2];
    float& high = s[c / 2 * 4 + c % 2 + 2];
    low = ptx::exp2_approx(fmaf(low, scale, -base));
    high = ptx::exp2_approx(fmaf(high, scale, -base));
    sum_[c] = fmaf(sum_[c], rescale[c], low + high);
  }
  unsigned char* weights = weights_ + group() * Config::kQueryBoxBytes;
#pragma unroll
  for (int j = 0; j < Config::kRows / 8; j += 2) {
    uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = (j + i / 2) * 4 + i % 2 * 2;
      packed[i] = pack<T>(s[at], s[at + 1]);
    }
    const int to_row = (j + lane_ / 16) * 8 + lane_ % 8, chunk = warp_ % 4 * 2 + lane_ / 8 % 2;
    ptx::stmatrix_x4_trans(weights + swizzled(to_row, chunk), packed);
  }
  if (__any_sync(0xFFFFFFFFu, moved)) {
#pragma unroll
    for (int b = 0; b < Config::kValueBoxes; ++b)
#pragma unroll
      for (int i = 0; i < Config::kScores; ++i) out_[b][i] *= rescale[i / 4 * 2 + i % 2];
  }
}

// Rows of the tile's value boxes from `live` on become zero.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::zero_tail(int live, Cursor cursor) {
  const int thread = threadIdx.x % Config::kGroupThreads;
  for (int b = 0; b < Config::kValueBoxes; ++b) {
    for (int i = live * 8 + thread; i < Config::kTokens * 8; i += Config::kGroupThreads)
      *reinterpret_cast<uint4*>(box(cursor.slot) + i * 16) = make_uint4(0, 0, 0, 0);
    cursor.skip(1);
  }
}

template <class T, class Config>
__device__ void NarrowCta<T, Config>::add_values(Cursor cursor) {
  const uint64_t weights = ptx::matrix_descriptor(weights_ + group() * Config::kQueryBoxBytes);
  ptx::wgmma_fence();
#pragma unroll
  for (int b = 0; b < Config::kValueBoxes; ++b) {
    const uint64_t values = ptx::matrix_descriptor(box(cursor.slot));
#pragma unroll
    for (int k = 0; k < Config::kTokens; k += 16)
      ptx::wgmma_ss<T, 1>(out_[b], ptx::advance(values, k * Config::kRowBytes), ptx::advance(weights, k * 2),
                          true);
    cursor.skip(1);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int b = 0; b < Config::kValueBoxes; ++b) ptx::pin(out_[b]);
}

// This warp is done with the boxes from the cursor on: lane b says so for box b.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::release(Cursor cursor, int boxes) {
  __syncwarp();
  if (lane_ >= boxes) return;
  cursor.skip(lane_);
  ptx::mbarrier_arrive(&small_.empty[cursor.slot]);
}

// Leaves the normalised output of the stretch in out_ (of the group's own boxes) and its LSE in small_.lse.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::attend(int first, int last) {
  load_query();
#pragma unroll
  for (int b = 0; b < Config::kValueBoxes; ++b)
#pragma unroll
    for (int i = 0; i < Config::kScores; ++i) out_[b][i] = 0;
#pragma unroll
  for (int c = 0; c < Config::kColumns; ++c) {
    max_[c] = -INFINITY;
    sum_[c] = 0;
  }
  consumer_sync();  // the query: all to all
  for (int tile = first; tile < last; ++tile, cursor_.skip(Config::kBoxes)) {
    if ((tile - first) % Config::kGroups != group()) continue;
    float s[Config::kScores];
    score(s, cursor_);
    soften(s, tile);
    const int live = kv_len_ - tile * Config::kTokens;
    if (live < Config::kTokens) zero_tail(live, cursor_);
    ptx::fence_async_shared();
    group_sync();  // weights and zeros: all to the tensor cores
    add_values(cursor_);
    release(cursor_, Config::kBoxes);
  }
  join_groups();
}

}  // namespace latent::attention::cuda
