// SPDX-License-Identifier: Apache-2.0
// Multi-head attention of prompts for any NVIDIA GPU since Ampere: mma.sync, ldmatrix, cp.async.
//
//   S [rows, keys]   = Q . K^T     all three operands of a product from shared memory or registers
//   O [rows, value] += P . V       P: the scores' own registers, rounded; V read transposed
//
// Four warps, each with its own rows of one item; one tile of keys and one of values in shared memory, each
// copied while the other is used:
//
//   copies    | V0       | K1      | V1       | K2      | …
//   products  | S0 = QK0 | O += V0 | S1 = QK1 | O += V1 | …
//
// A second CTA on the same multiprocessor fills what softmax and barriers leave idle. Tiles begin at
// multiples of kKeys, counted from a request's first key. Rows past a request's end are never read: zeros
// stand for them (contract C2).
#pragma once

#include <cmath>
#include <new>

#include "attention/backends/cuda_common/numbers.cuh"
#include "attention/backends/cuda_common/prefill_rows.cuh"
#include "attention/backends/cuda_sm80/prefill_config.cuh"
#include "prim/ptx_sm80.cuh"

namespace latent::attention::cuda {

template <class T, class Config>
class Sm80PrefillCta {
 public:
  using Small = typename Config::Small;
  using Items = typename Config::Items;

  __device__ Sm80PrefillCta(const PrefillParams& params, const PrefillWidths& widths, int section_keys,
                            unsigned char* memory)
      : p_(params),
        widths_(Config::widths(widths)),
        section_keys_(section_keys),
        query_(reinterpret_cast<T*>(memory)),
        keys_(query_ + Config::kQueryElements),
        values_(keys_ + Config::kKeyElements),
        small_(*reinterpret_cast<Small*>(values_ + Config::kValueElements)),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32) {}

  __device__ void run() {
    write_padded_rows(p_, widths_.v, threadIdx.x, Config::kThreads);
    Items* items = reinterpret_cast<Items*>(small_.items[lane_]);
    if (warp_ == 0) new (items) Items(p_, section_keys_);
    for (;;) {
      if (warp_ == 0) draw(*items);
      __syncthreads();
      const PrefillItem item = small_.item;
      if (item.rows == 0) return;
      const int tiles = (min(max(item.last_keys, 0), item.kv_len) + Config::kKeys - 1) / Config::kKeys;
      attend(item, tiles);
      write_rows(item);
      __syncthreads();  // the item and its operands are no longer needed
    }
  }

 private:
  // One warp; an item without rows is the end.
  __device__ void draw(Items& items) {
    int drawn = lane_ == 0 ? atomicAdd(p_.next_item, 1) : 0;
    drawn = __shfl_sync(0xFFFFFFFFu, drawn, 0);
    PrefillItem item{};
    const bool found = items.find(drawn, &item);
    if (lane_ != 0) return;
    small_.item = item;
    // Every CTA draws once past the end; the last to do so leaves the counter as it was found.
    if (!found && drawn == items.num_items() + static_cast<int>(gridDim.x) - 1) *p_.next_item = 0;
  }

  // Chunk `chunk` of 8 elements of a row of kColumns; eight rows' chunks lie in different banks.
  template <int kColumns>
  __device__ static T* at(T* tile, int row, int chunk) {
    return tile + row * kColumns + (chunk ^ row % 8) * 8;
  }

  // kRows rows from `first` on, of which `live` are there: columns of `a`, behind them those of `b`, behind
  // them zeros to a multiple of 16.
  template <int kRows, int kColumns>
  __device__ void copy_rows(T* to, const PrefillRows& a, int a_width, const PrefillRows& b, int b_width,
                            int64_t first, int live, int head) const {
    constexpr int kChunks = kColumns / 8;
    const int width = a_width + b_width;
    const T* a_row = static_cast<const T*>(a.data) + first * a.token_stride + head * a.head_stride;
    const T* b_row = static_cast<const T*>(b.data) + first * b.token_stride + head * b.head_stride;
#pragma unroll 2
    for (int i = threadIdx.x; i < kRows * kChunks; i += Config::kThreads) {
      const int row = i / kChunks, column = i % kChunks * 8;
      if (column >= (width + 15) / 16 * 16) continue;
      const bool valid = row < live && column < width;
      const T* from = column < a_width ? a_row + row * a.token_stride + column
                                       : b_row + row * b.token_stride + (column - a_width);
      ptx::cp_async_16(at<kColumns>(to, row, column / 8), from, valid);
    }
  }

  __device__ void copy_query(const PrefillItem& item) const {
    copy_rows<Config::kRows, Config::kQk>(query_, p_.q_nope, widths_.nope, p_.q_pe, widths_.rope, item.q_row,
                                          item.rows, item.head);
  }
  __device__ void copy_keys(const PrefillItem& item, int tile) const {
    const int first = tile * Config::kKeys;
    copy_rows<Config::kKeys, Config::kQk>(keys_, p_.k_nope, widths_.nope, p_.k_pe, widths_.rope,
                                          item.kv_row + first, item.kv_len - first, item.head);
  }
  __device__ void copy_values(const PrefillItem& item, int tile) const {
    const int first = tile * Config::kKeys;
    copy_rows<Config::kKeys, Config::kValue>(values_, p_.v, widths_.v, p_.v, 0, item.kv_row + first,
                                             item.kv_len - first, item.head);
  }
  // Until what this CTA's threads copied is there, and what they read before is no longer needed.
  __device__ static void meet() {
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    __syncthreads();
  }

  // Row of the item that scores and outputs [tile][.][2 * half] and the next belong to.
  __device__ int row_of(int tile, int half) const {
    return warp_ * Config::kWarpRows + tile * 16 + half * 8 + lane_ / 4;
  }

  __device__ void attend(const PrefillItem& item, int tiles);
  using Scores = float[Config::kRowTiles][Config::kKeys / 8][4];
  __device__ void score(Scores& s) const;
  __device__ void mask(Scores& s, const PrefillItem& item, int tile) const;
  __device__ void soften(Scores& s);
  __device__ void add_values();
  __device__ void write_rows(const PrefillItem& item);

  const PrefillParams& p_;
  const PrefillWidths widths_;
  const int section_keys_;
  T* const query_;   // [row][column]
  T* const keys_;    // [key][column]
  T* const values_;  // [key][column]
  Small& small_;
  const int warp_, lane_;

  uint32_t weights_[Config::kRowTiles][Config::kKeys / 16][4];  // of a tile, rounded
  float out_[Config::kRowTiles][Config::kValue / 8][4];         // unnormalised
  // Of a thread's rows, base-2 domain; sums of its own keys alone.
  float max_[Config::kRowTiles][2], sum_[Config::kRowTiles][2];
};

template <class T, class Config>
__device__ void Sm80PrefillCta<T, Config>::attend(const PrefillItem& item, int tiles) {
#pragma unroll
  for (int r = 0; r < Config::kRowTiles; ++r) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      max_[r][h] = -INFINITY;
      sum_[r][h] = 0;
    }
#pragma unroll
    for (int n = 0; n < Config::kValue / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) out_[r][n][i] = 0;
  }
  if (tiles == 0) return;
  // Tiles from here on are not seen whole by every row of the warp.
  const int first_masked = max(item.num_keys(warp_ * Config::kWarpRows), 0) / Config::kKeys;
  copy_query(item);
  copy_keys(item, 0);
  for (int tile = 0; tile < tiles; ++tile) {
    meet();
    copy_values(item, tile);
    Scores s;
    score(s);
    if (tile >= first_masked) mask(s, item, tile);
    soften(s);
    meet();
    if (tile + 1 < tiles) copy_keys(item, tile + 1);
    add_values();
  }
}

template <class T, class Config>
__device__ void Sm80PrefillCta<T, Config>::score(Scores& s) const {
#pragma unroll
  for (int r = 0; r < Config::kRowTiles; ++r)
#pragma unroll
    for (int n = 0; n < Config::kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[r][n][i] = 0;
  const int width = widths_.nope + widths_.rope;
#pragma unroll 4  // chunks are permuted alike in every fourth step
  for (int k = 0; k < Config::kQk / 16; ++k) {
    if (k * 16 >= width) break;
    uint32_t query[Config::kRowTiles][4];
#pragma unroll
    for (int r = 0; r < Config::kRowTiles; ++r)
      ptx::ldmatrix_x4(query[r], at<Config::kQk>(query_, warp_ * Config::kWarpRows + r * 16 + lane_ % 16,
                                                 k * 2 + lane_ / 16));
#pragma unroll
    for (int n = 0; n < Config::kKeys / 16; ++n) {
      uint32_t keys[4];
      ptx::ldmatrix_x4(keys,
                       at<Config::kQk>(keys_, n * 16 + lane_ / 16 * 8 + lane_ % 8, k * 2 + lane_ / 8 % 2));
#pragma unroll
      for (int r = 0; r < Config::kRowTiles; ++r) {
        ptx::mma_m16n8k16<T>(s[r][2 * n], query[r], keys[0], keys[1]);
        ptx::mma_m16n8k16<T>(s[r][2 * n + 1], query[r], keys[2], keys[3]);
      }
    }
  }
}

template <class T, class Config>
__device__ void Sm80PrefillCta<T, Config>::mask(Scores& s, const PrefillItem& item, int tile) const {
  const int first = tile * Config::kKeys + lane_ % 4 * 2;
#pragma unroll
  for (int r = 0; r < Config::kRowTiles; ++r) {
    const int limits[2] = {item.num_keys(row_of(r, 0)) - first, item.num_keys(row_of(r, 1)) - first};
#pragma unroll
    for (int n = 0; n < Config::kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (n * 8 + i % 2 >= limits[i / 2]) s[r][n][i] = -INFINITY;
  }
}

// Scores become weights; running maxima, sums and outputs follow.
template <class T, class Config>
__device__ void Sm80PrefillCta<T, Config>::soften(Scores& s) {
  const float scale = p_.softmax_scale * kLog2E;
#pragma unroll
  for (int r = 0; r < Config::kRowTiles; ++r) {
    float rescale[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = -INFINITY;
#pragma unroll
      for (int n = 0; n < Config::kKeys / 8; ++n)
        largest = fmaxf(largest, fmaxf(s[r][n][2 * h], s[r][n][2 * h + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2)) * scale;
      const float next = largest > max_[r][h] + kMaxSlack ? largest : max_[r][h];
      const float base = next == -INFINITY ? 0.0f : next;  // a row without keys so far
      rescale[h] = ptx::exp2_approx(max_[r][h] - base);
      max_[r][h] = next;
      float sum = sum_[r][h] * rescale[h];
#pragma unroll
      for (int n = 0; n < Config::kKeys / 8; ++n)
#pragma unroll
        for (int i = 2 * h; i < 2 * h + 2; ++i) {
          s[r][n][i] = ptx::exp2_approx(fmaf(s[r][n][i], scale, -base));
          sum += s[r][n][i];
        }
      sum_[r][h] = sum;
    }
#pragma unroll
    for (int k = 0; k < Config::kKeys / 16; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        weights_[r][k][i] = pack<T>(s[r][2 * k + i / 2][i % 2 * 2], s[r][2 * k + i / 2][i % 2 * 2 + 1]);
    if (__any_sync(0xFFFFFFFFu, rescale[0] != 1.0f || rescale[1] != 1.0f)) {
#pragma unroll
      for (int n = 0; n < Config::kValue / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) out_[r][n][i] *= rescale[i / 2];
    }
  }
}

template <class T, class Config>
__device__ void Sm80PrefillCta<T, Config>::add_values() {
#pragma unroll
  for (int k = 0; k < Config::kKeys / 16; ++k) {
#pragma unroll
    for (int n = 0; n < Config::kValue / 16; ++n) {
      if (n * 16 >= widths_.v) break;
      uint32_t values[4];
      ptx::ldmatrix_x4_trans(values, at<Config::kValue>(values_, k * 16 + lane_ % 16, n * 2 + lane_ / 16));
#pragma unroll
      for (int r = 0; r < Config::kRowTiles; ++r) {
        ptx::mma_m16n8k16<T>(out_[r][2 * n], weights_[r][k], values[0], values[1]);
        ptx::mma_m16n8k16<T>(out_[r][2 * n + 1], weights_[r][k], values[2], values[3]);
      }
    }
  }
}

template <class T, class Config>
__device__ void Sm80PrefillCta<T, Config>::write_rows(const PrefillItem& item) {
#pragma unroll
  for (int r = 0; r < Config::kRowTiles; ++r)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row_of(r, h);
      float sum = sum_[r][h];
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
      const bool is_empty = item.num_keys(row) <= 0, is_live = row < item.rows;
      const float factor = is_empty ? 0.0f : 1.0f / sum;
      const int64_t token = item.q_row + row;
      const auto value = [&](int n, int e) { return is_empty ? 0.0f : out_[r][n][2 * h + e] * factor; };
      const int64_t first = token * p_.out_token_stride + item.head * p_.out_head_stride;
      if (p_.out_is_f32) {
        float* to = static_cast<float*>(p_.out) + first + lane_ % 4 * 2;
#pragma unroll
        for (int n = 0; n < Config::kValue / 8; ++n)
          if (is_live && n * 8 < widths_.v)
            *reinterpret_cast<float2*>(to + n * 8) = make_float2(value(n, 0), value(n, 1));
      } else {
        T* to = static_cast<T*>(p_.out) + first;
#pragma unroll
        for (int four = 0; four < Config::kValue / 32; ++four) {
          uint32_t x[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) x[i] = pack<T>(value(four * 4 + i, 0), value(four * 4 + i, 1));
          transpose_quad(x);
          const int column = four * 32 + lane_ % 4 * 8;
          if (is_live && column < widths_.v)
            *reinterpret_cast<uint4*>(to + column) = make_uint4(x[0], x[1], x[2], x[3]);
        }
      }
      if (p_.lse != nullptr && is_live && lane_ % 4 == 0)
        p_.lse[token * p_.lse_token_stride + item.head * p_.lse_head_stride] =
            is_empty ? -INFINITY : (max_[r][h] + log2f(sum)) * kLn2;
    }
}

}  // namespace latent::attention::cuda
