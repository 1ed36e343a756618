// SPDX-License-Identifier: Apache-2.0
// The wide decode kernel's main loop: boxes in, outputs of a stretch of tiles in registers.
#pragma once

#include <cmath>

#include "attention/backends/cuda_sm90/wide_cta.cuh"

namespace latent::attention::cuda {

// --- The feeder ---

// Boxes of a tile in the order in which they are let go. Pages past the request's last one are neither looked
// up nor read.
template <class T, class Config>
__device__ void WideCta<T, Config>::feed(int first, int last) {
  const int32_t* table = p_.block_table + seq_ * p_.table_stride;
  const int page = p_.page_tokens;
  for (int i = 0; i < last - first; ++i) {
    const int token = (first + i) * Config::kTokens;
    const int live = min(kv_len_ - token, Config::kTokens);
    const int pages = page >= Config::kTokens ? 1 : (live + page - 1) / page;
    const int32_t id = lane_ < pages ? table[token / page + lane_] : 0;
    const int y = token % page;
    if (Config::kRopeBoxes > 0) feed_box(slot(i), phase(i), Config::kRank, y, pages, id);
    for (int half = 0; half < 2; ++half)
      for (int b = 0; b < Config::kHalfBoxes; ++b)
        feed_box(half_slot(i, half ^ (i % 2)) + b, phase(i),
                 ((half ^ (i % 2)) * Config::kHalfBoxes + b) * Config::kBoxColumns, y, pages, id);
  }
  tiles_before_ += last - first;
}

template <class T, class Config>
__device__ void WideCta<T, Config>::feed_box(int slot, int phase, int column, int y, int pages, int32_t id) {
  const int box_tokens = min(p_.page_tokens, Config::kTokens);
  uint64_t* full = &small_.full[slot];
  ptx::mbarrier_wait(&small_.empty[slot], phase ^ 1);
  if (lane_ == 0) ptx::mbarrier_arrive_expect(full, pages * box_tokens * Config::kRowBytes);
  __syncwarp();
  if (lane_ < pages)
    ptx::tma_load_3d(box(slot) + lane_ * box_tokens * Config::kRowBytes, map_, column, y, id, full,
                     ptx::evict_first_policy());
}

// Its companions: the query of one request while the groups finish the one before. A warp takes rows that
// follow one another; lane i finds where its i-th begins.
template <class T, class Config>
__device__ void WideCta<T, Config>::load_query() {
  constexpr int kWarps = Config::kQueryThreads / 32, kWarpRows = (Config::kRows + kWarps - 1) / kWarps;
  static_assert(kWarpRows <= 32 && Config::kRank % 256 == 0);
  const int first = (warp_ - Config::kConsumers / 32 - 1) * kWarpRows;
  const int end = min(kWarpRows, Config::kRows - first),
            live = num_rows_ - row(first);  // of this warp's rows
  int64_t nope_at = 0, pe_at = 0;
  if (lane_ < live) {
    const int64_t token = q_start_ + row(first + lane_) / p_.num_heads,
                  head = row(first + lane_) % p_.num_heads;
    nope_at = token * p_.q_nope_token_stride + head * p_.q_nope_head_stride;
    pe_at = token * p_.q_pe_token_stride + head * p_.q_pe_head_stride;
  }
  unsigned char* to = query_ + lane_ / 8 * Config::kBoxBytes;
  const T* nope = static_cast<const T*>(p_.q_nope) + lane_ * 8;
  ptx::mbarrier_wait(&small_.query_empty, requests_ % 2 ^ 1);
#pragma unroll 1
  for (int i = 0; i < end; ++i) {
    const T* from = nope + __shfl_sync(0xFFFFFFFFu, nope_at, i);
    unsigned char* into = to + swizzled(first + i, lane_ % 8);
#pragma unroll
    for (int half = 0; half < Config::kRank / 256; ++half)
      ptx::cp_async_16(into + half * 4 * Config::kBoxBytes, from + half * 256, i < live);
  }
  if (Config::kRopeBoxes > 0) load_query_rope(first, end, live, pe_at);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  ptx::fence_async_shared();
  ptx::mbarrier_arrive(&small_.query_full);
}

// Four rows at a time.
template <class T, class Config>
__device__ void WideCta<T, Config>::load_query_rope(int first, int end, int live, int64_t at) {
  const bool has_columns = lane_ % 8 * 8 < Config::kRope;
  const T* pe = static_cast<const T*>(p_.q_pe) + (has_columns ? lane_ % 8 * 8 : 0);
  unsigned char* to = query_ + Config::kValueBoxes * Config::kBoxBytes;
#pragma unroll 2
  for (int i = lane_ / 8; i < end + lane_ / 8; i += 4) {
    const T* from = pe + __shfl_sync(0xFFFFFFFFu, at, i % 32);
    if (i < end) ptx::cp_async_16(to + swizzled(first + i, lane_ % 8), from, has_columns && i < live);
  }
}

// --- The warpgroups ---

// Begins to add boxes kFirst .. kEnd - 1 of tile i to its scores, box by box as they come.
template <class T, class Config>
template <int kFirst, int kEnd>
__device__ void WideCta<T, Config>::score(float (&s)[Config::kScores], int i) {
  const int first = slot(i), parity = phase(i);
  const uint64_t query = ptx::opaque(ptx::matrix_descriptor(query_));
#pragma unroll
  for (int b = kFirst; b < kEnd; ++b) {
    const int v = b - Config::kRopeBoxes;  // the owner's half of the values, then the other one
    const int column_box = v < 0 ? Config::kValueBoxes
                           : v < Config::kHalfBoxes
                               ? group() * Config::kHalfBoxes + v
                               : (1 - group()) * Config::kHalfBoxes + v - Config::kHalfBoxes;
    ptx::mbarrier_wait(&small_.full[first + b], parity);
    const uint64_t keys = ptx::matrix_descriptor(box(first + b));
    const uint64_t rows = ptx::advance(query, column_box * Config::kBoxBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Config::kBoxColumns; k += 16)
      ptx::wgmma_wide_ss<T>(s, ptx::advance(rows, k * 2), ptx::advance(keys, k * 2), b + k > 0);
  }
  ptx::wgmma_commit();
}

template <class T, class Config>
__device__ void WideCta<T, Config>::mask(float (&s)[Config::kScores], int tile) const {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int keys = num_keys(local_row(h)) - tile * Config::kTokens - lane_ % 4 * 2;
#pragma unroll
    for (int j = 0; j < Config::kTokens / 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (8 * j + e >= keys) s[4 * j + 2 * h + e] = -INFINITY;
  }
}

// Scores become weights; running maxima and sums follow, the output is yet to.
template <class T, class Config>
__device__ void WideCta<T, Config>::soften(float (&s)[Config::kScores], int tile, Weights& w) {
  // Rows past the last are masked here alone: nobody reads them.
  if ((tile + 1) * Config::kTokens > kv_len_ - q_len_ + 1) mask(s, tile);
  const float scale = p_.softmax_scale * kLog2E;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float largest = fmaxf(s[2 * h], s[2 * h + 1]);
#pragma unroll
    for (int j = 1; j < Config::kTokens / 8; ++j)
      largest = fmaxf(largest, fmaxf(s[4 * j + 2 * h], s[4 * j + 2 * h + 1]));
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2)) * scale;
    const bool grown = largest > max_[h] + kMaxSlack;
    w.factor[h] = grown ? ptx::exp2_approx(max_[h] - largest) : 1.0f;
    if (grown) max_[h] = largest;
    const float base = max_[h] == -INFINITY ? 0.0f : max_[h];  // a row without keys so far
    sum_[h] *= w.factor[h];
    exact_[h] *= w.factor[h];
#pragma unroll
    for (int j = 0; j < Config::kTokens / 8; ++j) {
      const float low = ptx::exp2_approx(fmaf(s[4 * j + 2 * h], scale, -base));
      const float high = ptx::exp2_approx(fmaf(s[4 * j + 2 * h + 1], scale, -base));
      w.packed[2 * j + h] = pack<T>(low, high);
      exact_[h] += low + high;
      const float2 rounded = unpack<T>(w.packed[2 * j + h]);
      sum_[h] += rounded.x + rounded.y;
    }
  }
}

// Keys from `live` on get values of zero. Called by one group.
template <class T, class Config>
__device__ void WideCta<T, Config>::zero_tail(int i, int live) {
  unsigned char* first = box(slot(i) + Config::kRopeBoxes);
  const int thread = threadIdx.x % Config::kGroupThreads, chunks = (Config::kTokens - live) * 8;
  for (int b = 0; b < Config::kValueBoxes; ++b)
    for (int c = thread; c < chunks; c += Config::kGroupThreads)
      *reinterpret_cast<uint4*>(first + b * Config::kBoxBytes + live * Config::kRowBytes + c * 16) =
          make_uint4(0, 0, 0, 0);
  ptx::fence_async_shared();
  group_sync();  // zeros: all to the tensor cores
}

// Weights and maxima to the other group.
template <class T, class Config>
__device__ void WideCta<T, Config>::publish(const Weights& w) {
  const int to_row = warp_ % 4 * 16 + lane_ % 16;
#pragma unroll
  for (int j = 0; j < Config::kTokens / 16; ++j)
    ptx::stmatrix_x4(weights_ + swizzled(to_row, 2 * j + lane_ / 16),
                     {w.packed[4 * j], w.packed[4 * j + 1], w.packed[4 * j + 2], w.packed[4 * j + 3]});
  if (lane_ % 4 < 2) small_.max[group()][local_row(lane_ % 2)] = lane_ % 2 == 0 ? max_[0] : max_[1];
  ptx::fence_async_shared();
  ptx::named_barrier_arrive<Config::kConsumers>(1 + group());
}

template <class T, class Config>
__device__ void WideCta<T, Config>::rescale(const float (&factor)[2]) {
  if (!__any_sync(0xFFFFFFFFu, factor[0] != 1.0f || factor[1] != 1.0f)) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int j = 0; j < Config::kOutputs / 4; ++j) {
      out_[4 * j + 2 * h] *= factor[h];
      out_[4 * j + 2 * h + 1] *= factor[h];
    }
  }
}

template <class T, class Config>
__device__ void WideCta<T, Config>::add_own_values(const Weights& w, int i) {
  rescale(w.factor);
  const uint64_t v = values(i);
  ptx::pin(out_);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < Config::kTokens / 16; ++k) {
    const uint32_t a[4] = {w.packed[4 * k], w.packed[4 * k + 1], w.packed[4 * k + 2], w.packed[4 * k + 3]};
    ptx::wgmma_wide_rs<T>(out_, a, ptx::advance(v, k * 16 * Config::kRowBytes), true);
  }
  ptx::wgmma_commit();
}

// Waits for the other group's weights of tile i and begins to add its values.
template <class T, class Config>
__device__ void WideCta<T, Config>::add_other_values(int i) {
  ptx::named_barrier_sync<Config::kConsumers>(2 - group());
  float factor[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float largest = small_.max[1 - group()][local_row(h)];
    factor[h] = largest == max_[h] ? 1.0f : ptx::exp2_approx(max_[h] - largest);
    max_[h] = largest;
    sum_[h] *= factor[h];
    exact_[h] *= factor[h];
  }
  rescale(factor);
  const uint64_t w = ptx::matrix_descriptor(weights_), v = values(i);
  ptx::pin(out_);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < Config::kTokens / 16; ++k)
    ptx::wgmma_wide_ss_mn<T>(out_, ptx::advance(w, k * 32), ptx::advance(v, k * 16 * Config::kRowBytes),
                             true);
  ptx::wgmma_commit();
}

// This warp is done with boxes: lane b says so for box b.
template <class T, class Config>
__device__ void WideCta<T, Config>::release(int slot, int boxes) {
  __syncwarp();
  if (lane_ < boxes) ptx::mbarrier_arrive(&small_.empty[slot + lane_]);
}

template <class T, class Config>
__device__ void WideCta<T, Config>::let_go_of_query() {
  __syncwarp();  // no lane waits for this query any more
  if (lane_ == 0) ptx::mbarrier_arrive(&small_.query_empty);
}

// Lets the boxes with this group's values of tile i go when at most kPending batches of products are under
// way, those asked for after these values.
template <class T, class Config>
template <int kPending>
__device__ void WideCta<T, Config>::finish_values(int i) {
  ptx::wgmma_wait<kPending>();
  ptx::pin(out_);
  release(half_slot(i, group()), Config::kHalfBoxes);
}

// From the scores of tile i to its weights.
template <class T, class Config>
__device__ void WideCta<T, Config>::finish_scores(float (&s)[Config::kScores], int i, int first, int count,
                                                  Weights& w) {
  ptx::wgmma_wait<0>();
  ptx::pin(s);
  if (Config::kRopeBoxes > 0) release(slot(i), 1);
  if (i + 2 >= count) let_go_of_query();
  soften(s, first + i, w);
  const int live = kv_len_ - (first + i) * Config::kTokens;
  if (live < Config::kTokens) zero_tail(i, live);
}

// Leaves the output of the stretch in out_, unnormalised.
template <class T, class Config>
__device__ void WideCta<T, Config>::attend(int first, int last) {
  const int count = last - first;
#pragma unroll
  for (int i = 0; i < Config::kOutputs; ++i) out_[i] = 0;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    max_[h] = -INFINITY;
    sum_[h] = exact_[h] = 0;
  }
  ptx::mbarrier_wait(&small_.query_full, requests_ % 2);
  const int mine = group();
  constexpr int kEarly = Config::kRopeBoxes + Config::kHalfBoxes;
  if (mine < count) {
    Weights w;
    {
      float s[Config::kScores];
      score<0, Config::kBoxes>(s, mine);
      ptx::wgmma_wait<0>();
      ptx::pin(s);
      if (mine == 1) {
        add_other_values(0);
        finish_values<0>(0);
      }
      finish_scores(s, mine, first, count, w);
    }
    for (int i = mine;; i += 2) {
      publish(w);
      add_own_values(w, i);
      finish_values<0>(i);
      if (i + 2 >= count) break;
      float s[Config::kScores];
      score<0, kEarly>(s, i + 2);
      add_other_values(i + 1);
      score<kEarly, kEarly + 1>(s, i + 2);  // for the tensor cores, while boxes are let go
      finish_values<1>(i + 1);
      score<kEarly + 1, Config::kBoxes>(s, i + 2);
      finish_scores(s, i + 2, first, count, w);
    }
  } else {
    let_go_of_query();
  }
  if (count % 2 == mine) {
    add_other_values(count - 1);
    finish_values<0>(count - 1);
  }
  tiles_before_ += count;
}

}  // namespace latent::attention::cuda
