// SPDX-License-Identifier: Apache-2.0
// The narrow decode kernel's main loop: boxes in, outputs of a stretch of tiles in registers.
#pragma once

#include <cmath>

#include "attention/backends/cuda_sm90/narrow_cta.cuh"

namespace latent::attention::cuda {

// --- The copy warp ---

// The pages of the next tile are looked up while the boxes of this one are waited for.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::feed(int first, int last) {
  const int32_t* table = p_.block_table + seq_ * p_.table_stride;
  const int page = p_.page_tokens;
  const auto pages_of = [&](int tile) {
    return page >= Config::kTokens
               ? 1
               : (min(kv_len_ - tile * Config::kTokens, Config::kTokens) + page - 1) / page;
  };
  const auto look_up = [&](int tile) {
    return lane_ < pages_of(tile) ? table[tile * Config::kTokens / page + lane_] : 0;
  };
  int32_t id = look_up(first);
#pragma unroll 1
  for (int tile = first; tile < last; ++tile) {
    const int32_t next = tile + 1 < last ? look_up(tile + 1) : 0;
    if constexpr (Config::kHasCodes)
      feed_tile_codes(tile, pages_of(tile), id);
    else
      feed_tile(tile, pages_of(tile), id);
    id = next;
  }
}

// `pages` pages that hold keys of the tile, or the part of one that is the tile; lane i knows the i-th page's
// id. Pages past the request's last one are neither looked up nor read.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::feed_tile(int tile, int pages, int32_t id) {
  const int box_tokens = min(p_.page_tokens, Config::kTokens);
  const int y = tile * Config::kTokens % p_.page_tokens;
  const uint64_t policy = ptx::evict_first_policy();
  // A lane a box; those that are free in a row are asked for at once.
  Cursor mine = cursor_;
  mine.skip(lane_ < Config::kBoxes ? lane_ : 0);
  for (int done = 0; done < Config::kBoxes;) {
    Cursor next = cursor_;
    next.skip(done);
    ptx::mbarrier_wait(&small_.empty[next.slot], next.phase ^ 1);
    const bool is_free = lane_ < Config::kBoxes &&
                         (lane_ <= done || ptx::mbarrier_is_past(&small_.empty[mine.slot], mine.phase ^ 1));
    const int end = __ffs(static_cast<int>(~__ballot_sync(0xFFFFFFFFu, is_free))) - 1;
    const bool goes = lane_ >= done && lane_ < end;
    uint64_t* full = &small_.full[mine.slot];
    if (goes) ptx::mbarrier_arrive_expect(full, pages * box_tokens * Config::kRowBytes);
    for (int i = 0; i < pages; ++i) {
      const int32_t page = __shfl_sync(0xFFFFFFFFu, id, i);
      if (goes)
        ptx::tma_load_3d(box(mine.slot) + i * box_tokens * Config::kRowBytes, map_,
                         lane_ * Config::kBoxColumns, y, page, full, policy);
    }
    done = end;
  }
  cursor_.skip(Config::kBoxes);
}

// --- The warpgroups ---

// Where a row of the query begins in each of its two parts.
template <class T, class Config>
__device__ typename NarrowCta<T, Config>::QueryRow NarrowCta<T, Config>::query_row(int local) const {
  const int64_t token = q_start_ + heads_.divide(row(local)), head = heads_.remainder(row(local));
  return {static_cast<const T*>(p_.q_nope) + token * p_.q_nope_token_stride + head * p_.q_nope_head_stride,
          static_cast<const T*>(p_.q_pe) + token * p_.q_pe_token_stride + head * p_.q_pe_head_stride};
}

// All copies are under way at once; rows past the last and columns past the width become zeros.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::load_query() {
  constexpr int kSharers = Config::kConsumers / Config::kRows;  // threads of a row
  static_assert(kSharers % 8 == 0 && Config::kValueBoxes % (kSharers / 8) == 0);
  const int local = threadIdx.x / kSharers, chunk = threadIdx.x % kSharers;
  const bool live = row(local) < num_rows_;
  const QueryRow from = query_row(live ? local : 0);
  unsigned char* to = query_ + swizzled(local, chunk % 8);
#pragma unroll
  for (int box = 0; box < Config::kValueBoxes; box += kSharers / 8)
    ptx::cp_async_16(to + (box + chunk / 8) * Config::kQueryBoxBytes,
                     from.nope + (box * Config::kBoxColumns + chunk * 8), live);
  if (Config::kRope > 0 && chunk < 8) {
    const bool valid = live && chunk * 8 < Config::kRope;
    ptx::cp_async_16(to + Config::kValueBoxes * Config::kQueryBoxBytes, from.pe + (valid ? chunk * 8 : 0),
                     valid);
  }
  ptx::cp_async_commit();
}

// Brings the query's rows of a request into L2 ahead of time; by `num_threads` threads.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::prefetch_query(int thread, int num_threads) const {
  constexpr int kLines = (Config::kRank + Config::kRope + 63) / 64;
#pragma unroll 1
  for (int i = thread; i < Config::kRows * kLines; i += num_threads) {
    const int local = i / kLines, column = i % kLines * 64;
    if (row(local) >= num_rows_) continue;
    const QueryRow from = query_row(local);
    ptx::prefetch_l2(column < Config::kRank ? from.nope + column : from.pe);
  }
}

// S^T of the tile at the cursor; waits for its boxes one by one.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::score(float (&s)[Config::kScores], Cursor cursor) {
  float chains[Config::kChains][Config::kScores];
  uint64_t query = ptx::matrix_descriptor(query_);
#pragma unroll 1
  for (int b = 0; b < Config::kBoxes; ++b) {
    ptx::mbarrier_wait(&small_.full[cursor.slot], cursor.phase);
    const uint64_t keys = ptx::matrix_descriptor(box(cursor.slot));
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < Config::kBoxColumns / 16; ++step)
      ptx::wgmma_ss<T, 0>(chains[step % Config::kChains], ptx::advance(keys, step * 32),
                          ptx::advance(query, step * 32), b > 0 || step >= Config::kChains);
    query = ptx::advance(query, Config::kQueryBoxBytes);
    cursor.skip(1);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int c = 0; c < Config::kChains; ++c) ptx::pin(chains[c]);
#pragma unroll
  for (int i = 0; i < Config::kScores; ++i) {
    s[i] = chains[0][i];
    if constexpr (Config::kChains == 4) s[i] = (s[i] + chains[1][i]) + (chains[2][i] + chains[3][i]);
  }
}

// Scores become weights, in shared memory, with the scales of the tile's `keys` if they are codes in blocks;
// running maxima, sums and the output follow.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::soften(float (&s)[Config::kScores], int tile,
                                             const unsigned char* keys) {
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
  for (int g = 0; g < Config::kScaleGroups; ++g)
    if constexpr (Config::kCodes == Codes::kBlocks) moved |= unit_ratio_[g] != 1;
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
    const float shift = Config::kHasCodes ? kLogWeightLift - base : -base;
    low = ptx::exp2_approx(fmaf(low, scale, shift));
    high = ptx::exp2_approx(fmaf(high, scale, shift));
    sum_[c] = fmaf(sum_[c], rescale[c], low + high);
    rounded_[c] *= rescale[c];
  }
  if constexpr (Config::kCodes == Codes::kBlocks)
    store_scaled_weights(s, keys);
  else
    store_weights(s, weights_ + group() * Config::kWeightBytes);
  if (__any_sync(0xFFFFFFFFu, moved)) {
#pragma unroll
    for (int b = 0; b < Config::kValueBoxes; ++b)
#pragma unroll
      for (int i = 0; i < Config::kScores; ++i) {
        float by = rescale[i / 4 * 2 + i % 2];
        if constexpr (Config::kCodes == Codes::kBlocks) by *= unit_ratio_[b / 2];
        out_[b][i] *= by;
      }
  }
}

// Weights as the product wants them, and the sums of what they were rounded to.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::store_weights(const float (&s)[Config::kScores],
                                                    unsigned char* weights) {
#pragma unroll
  for (int j = 0; j < Config::kRows / 8; j += 2) {
    uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = (j + i / 2) * 4 + i % 2 * 2;
      packed[i] = pack<Product>(s[at], s[at + 1]);
      const float2 rounded = unpack<Product>(packed[i]);
      rounded_[(j + i / 2) * 2] += rounded.x;
      rounded_[(j + i / 2) * 2 + 1] += rounded.y;
    }
    const int to_row = (j + lane_ / 16) * 8 + lane_ % 8, chunk = warp_ % 4 * 2 + lane_ / 8 % 2;
    ptx::stmatrix_x4_trans(weights + swizzled(to_row, chunk), packed);
  }
}

// Rows of the tile's value boxes from `live` on become zero.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::zero_tail(int live, Cursor cursor) {
  const int thread = threadIdx.x % Config::kGroupThreads;
#pragma unroll 1
  for (int b = 0; b < Config::kValueBoxes; ++b) {
#pragma unroll 1
    for (int i = live * 8 + thread; i < Config::kTokens * 8; i += Config::kGroupThreads)
      *reinterpret_cast<uint4*>(box(cursor.slot) + i * 16) = make_uint4(0, 0, 0, 0);
    cursor.skip(1);
  }
}

// Products that follow one another go to different outputs, so that none waits for the one before.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::add_values(Cursor cursor) {
  constexpr int kSideBySide = Config::kSideBySide;
  static_assert(Config::kValueBoxes % kSideBySide == 0);
  const uint64_t weights = ptx::matrix_descriptor(weights_ + group() * Config::kQueryBoxBytes);
  ptx::wgmma_fence();
#pragma unroll
  for (int first = 0; first < Config::kValueBoxes; first += kSideBySide) {
    uint64_t values[kSideBySide];
#pragma unroll
    for (int b = 0; b < kSideBySide; ++b, cursor.skip(1))
      values[b] = ptx::matrix_descriptor(box(cursor.slot));
#pragma unroll
    for (int k = 0; k < Config::kTokens; k += 16)
#pragma unroll
      for (int b = 0; b < kSideBySide; ++b)
        ptx::wgmma_ss<T, 1>(out_[first + b], ptx::advance(values[b], k * Config::kRowBytes),
                            ptx::advance(weights, k * 2), true);
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

// Leaves the group's output of its tiles in out_, with max_ and sum_.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::attend(int first, int last) {
  if constexpr (Config::kHasCodes) return attend_codes(first, last);
  consumer_sync();  // the request before is merged: the query's memory is free
  load_query();
#pragma unroll
  for (int b = 0; b < Config::kValueBoxes; ++b)
#pragma unroll
    for (int i = 0; i < Config::kScores; ++i) out_[b][i] = 0;
#pragma unroll
  for (int c = 0; c < Config::kColumns; ++c) {
    max_[c] = -INFINITY;
    sum_[c] = rounded_[c] = 0;
  }
  ptx::cp_async_wait<0>();
  ptx::fence_async_shared();
  consumer_sync();  // the query: all to all
  for (int tile = first; tile < last; ++tile, cursor_.skip(Config::kBoxes)) {
    if ((tile - first) % Config::kGroups != group()) continue;
    float s[Config::kScores];
    score(s, cursor_);
    soften(s, tile, nullptr);
    const int live = kv_len_ - tile * Config::kTokens;
    if (live < Config::kTokens) zero_tail(live, cursor_);
    ptx::fence_async_shared();
    group_sync();  // weights and zeros: all to the tensor cores
    add_values(cursor_);
    release(cursor_, Config::kBoxes);
  }
}

}  // namespace latent::attention::cuda
