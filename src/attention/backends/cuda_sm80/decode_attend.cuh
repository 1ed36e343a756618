// SPDX-License-Identifier: Apache-2.0
// The portable decode kernel's main loop: keys in, outputs of a stretch of tiles in registers.
#pragma once

#include "attention/backends/cuda_sm80/decode_cta.cuh"

namespace latent::attention::cuda {

// cp.async takes the number of groups as a constant.
__device__ inline void wait_for_all_but(int groups) {
  switch (groups) {
    case 0:
      return ptx::cp_async_wait<0>();
    case 1:
      return ptx::cp_async_wait<1>();
    case 2:
      return ptx::cp_async_wait<2>();
    case 3:
      return ptx::cp_async_wait<3>();
    default:
      return ptx::cp_async_wait<4>();
  }
}

template <class T, class Config>
__device__ void DecodeCta<T, Config>::load_query() {
  constexpr int kChunks = Config::kWidth / 8;
  const T* nope = static_cast<const T*>(p_.q_nope);
  const T* pe = static_cast<const T*>(p_.q_pe);
  for (int i = threadIdx.x; i < Config::kRows * kChunks; i += Config::kThreads) {
    const int local = i / kChunks, column = i % kChunks * 8;
    const bool live = row(local) < num_rows_;
    const int64_t token = q_start_ + (live ? row(local) / p_.num_heads : 0);
    const int64_t head = live ? row(local) % p_.num_heads : 0;
    const T* from =
        column < Config::kRank
            ? nope + token * p_.q_nope_token_stride + head * p_.q_nope_head_stride + column
            : pe + token * p_.q_pe_token_stride + head * p_.q_pe_head_stride + column - Config::kRank;
    ptx::cp_async_16(shared_.query + local * Config::kKeyStride + column, from, live);
  }
}

// To the same place in the next tile.
template <class T, class Config>
__device__ void DecodeCta<T, Config>::advance(KeyPlace* place) const {
  place->key += Config::kTokens;
  place->in_page += Config::kTokens;
  for (; place->in_page >= p_.page_tokens; place->in_page -= p_.page_tokens) ++place->page;
}

// Asked for a tile before it is used.
template <class T, class Config>
__device__ void DecodeCta<T, Config>::look_up(KeyPlace* place) const {
  if (place->key < kv_len_) place->id = p_.block_table[seq_ * p_.table_stride + place->page];
}

// A few neighbouring threads copy a key: its address is found once, and they read in lines.
template <class T, class Config>
__device__ void DecodeCta<T, Config>::load_keys(const KeyPlace& place, int stage) {
  const int at = threadIdx.x % kRowSharers * 16;
  const bool live = place.key < kv_len_;
  const auto* from = static_cast<const unsigned char*>(p_.cache);
  if (live)
    from += (place.id * p_.cache_page_stride + place.in_page * p_.cache_row_stride) * Config::kElementBytes;
  unsigned char* to =
      keys_ + stage * Config::kStageBytes + threadIdx.x / kRowSharers * Config::kRowStrideBytes;
#pragma unroll
  for (int i = 0; i < Config::kRowBytes; i += kRowSharers * 16)
    if (i + at < Config::kRowBytes) ptx::cp_async_16(to + i + at, from + i + at, live);
}

template <int kChains>
__device__ inline float sum_of_chains(const float (&chains)[kChains][4], int i) {
  float sum = chains[0][i] + chains[1][i];
  if constexpr (kChains == 4) sum += chains[2][i] + chains[3][i];
  return sum;
}

template <class T, class Config>
__device__ void DecodeCta<T, Config>::leave_scores(const float (&s)[Config::kScoreTiles][4]) {
#pragma unroll
  for (int n = 0; n < Config::kScoreTiles; ++n) {
    float* to = shared_.scores[key_part()] + (score_row_tile() * 16 + lane_ / 4) * Config::kScoreStride +
                score_token() + n * 8 + lane_ % 4 * 2;
    to[0] = s[n][0];
    to[1] = s[n][1];
    to[8 * Config::kScoreStride] = s[n][2];
    to[8 * Config::kScoreStride + 1] = s[n][3];
  }
}

// Fragments of the query for this warp's step `i`.
template <class T, class Config>
__device__ void DecodeCta<T, Config>::take_query(int i) {
  if (!has_step(i)) return;
#pragma unroll
  for (int j = 0; j < Config::kStepFragments; ++j)
    ptx::ldmatrix_x4(query_[Config::kKeepsQuery ? i : 0][j],
                     query_of_lane() + (first_step() + i) * Config::kStepColumns + j * 16);
}

// Each warp: its part of the columns of 16 rows by kScoreTiles * 8 tokens.
template <class T, class Config>
__device__ void DecodeCta<T, Config>::score(const T* keys) {
  // Four 8x8 blocks of keys: columns k..k+31 of 8 tokens.
  const T* key = keys + (score_token() + lane_ % 8) * Config::kKeyStride + lane_ / 8 * 8 +
                 first_step() * Config::kStepColumns;
  float s[Config::kScoreTiles][Config::kChains][4] = {};
  // Keys of a few steps are loaded before their products.
  constexpr int kAtOnce = Config::kKeepsQuery ? 3 : 1;
#pragma unroll
  for (int first = 0; first < Config::kPartSteps; first += kAtOnce) {
    uint32_t b[kAtOnce][Config::kScoreTiles][4];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
      for (int n = 0; n < Config::kScoreTiles; ++n)
        if (has_step(first + i))
          ptx::ldmatrix_x4(b[i][n], key + n * 8 * Config::kKeyStride + (first + i) * Config::kStepColumns);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (!has_step(first + i)) break;
      const int step = first + i;
      if (!Config::kKeepsQuery) take_query(step);
      const auto& query = query_[Config::kKeepsQuery ? step : 0];
#pragma unroll
      for (int n = 0; n < Config::kScoreTiles; ++n) {
        ptx::mma_m16n8k16<T>(s[n][2 * step % Config::kChains], query[0], b[i][n][0], b[i][n][1]);
        ptx::mma_m16n8k16<T>(s[n][(2 * step + 1) % Config::kChains], query[1], b[i][n][2], b[i][n][3]);
      }
    }
  }
  float sums[Config::kScoreTiles][4];
#pragma unroll
  for (int n = 0; n < Config::kScoreTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[n][i] = sum_of_chains(s[n], i);
  leave_scores(sums);
}

// kThreads / kRows neighbouring threads share a row. The running maximum, and the sums of each one's tokens,
// stay in their registers.
template <class T, class Config>
__device__ void DecodeCta<T, Config>::soften(int tile, const unsigned char* keys_of_tile) {
  if constexpr (Config::kCodes == Codes::kBlocks) widen_units(keys_of_tile);
  constexpr int kSharers = Config::kThreads / Config::kRows;
  constexpr int kMine = Config::kTokens / kSharers;
  const int local = threadIdx.x / kSharers, share = threadIdx.x % kSharers;
  const float scale = p_.softmax_scale * kLog2E;
  const int keys = num_keys(local) - tile * Config::kTokens;
  float x[kMine];
  float largest = -INFINITY;
#pragma unroll
  for (int j = 0; j < kMine; ++j) {
    const int token = share + j * kSharers;
    float score = shared_.scores[0][local * Config::kScoreStride + token];
#pragma unroll
    for (int part = 1; part < Config::kKeyParts; ++part)
      score += shared_.scores[part][local * Config::kScoreStride + token];
    x[j] = token < keys ? score * scale : -INFINITY;
    largest = fmaxf(largest, x[j]);
  }
#pragma unroll
  for (int d = 1; d < kSharers; d *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, d));
  const float new_max = fmaxf(max_, largest);
  const float base = new_max == -INFINITY ? 0.0f : new_max;  // a row without keys so far
  const float rescale = ptx::exp2_approx(max_ - base);
  float sum = 0, weight_sum = 0;
#pragma unroll
  for (int j = 0; j < kMine; ++j) {
    const float weight = ptx::exp2_approx(x[j] - base);
    const int at = local * Config::kWeightStride + share + j * kSharers;
    sum += weight;  // for the LSE, which is good to fp32
    if constexpr (Config::kCodes == Codes::kBlocks) {
      const auto* scales = reinterpret_cast<const float*>(
          keys_of_tile + (share + j * kSharers) * Config::CodeRow::kStride + Config::kRank);
#pragma unroll
      for (int g = 0; g < Config::kScaleGroups; ++g) {
        // A key that the row does not see has no part, whatever its scale is.
        const float lifted = weight == 0 ? 0 : weight * (scales[g] * lift_of(unit_[g]));
        shared_.weights[g * Config::kRows * Config::kWeightStride + at] = from_float<Product>(lifted);
      }
      weight_sum += weight;
    } else {
      const Product rounded =
          from_float<Product>(Config::kHasCodes ? weight * (1 << kLogWeightLift) : weight);
      shared_.weights[at] = rounded;
      weight_sum += to_float(rounded);  // for the output: the weights that multiply the values add up to one
    }
  }
  sum_ = sum_ * rescale + sum;
  weight_sum_ = weight_sum_ * rescale + weight_sum;
  max_ = new_max;
  if (share == 0) shared_.rescale[local] = rescale;
}

template <class T, class Config>
__device__ void DecodeCta<T, Config>::rescale_output() {
#pragma unroll
  for (int m = 0; m < Config::kRowTiles; ++m) {
    const float low = shared_.rescale[m * 16 + lane_ / 4] * unit_rescale_;
    const float high = shared_.rescale[m * 16 + lane_ / 4 + 8] * unit_rescale_;
    if (!__any_sync(0xFFFFFFFFu, low != 1 || high != 1)) continue;
#pragma unroll
    for (int n = 0; n < Config::kValueTiles; ++n) {
      out_[m][n][0] *= low;
      out_[m][n][1] *= low;
      out_[m][n][2] *= high;
      out_[m][n][3] *= high;
    }
  }
}

// 32 bytes of 16 tokens. Rows are tokens; transposed on the way.
template <class T, class Config>
__device__ void DecodeCta<T, Config>::take_values(int block, int load, const unsigned char* keys) {
  const int first_column = warp_ * Config::kValueTiles * 8;
  ptx::ldmatrix_x4_trans(values_[kEarly ? block : 0][kEarly ? load : 0],
                         keys + (block * 16 + lane_ % 16) * Config::kRowStrideBytes +
                             first_column * Config::kElementBytes + lane_ / 16 * 16 + load * 32);
}

template <class T, class Config>
__device__ void DecodeCta<T, Config>::add_values(const unsigned char* keys) {
#pragma unroll
  for (int block = 0; block < kTokenBlocks; ++block) {
    uint32_t a[Config::kRowTiles][4];
#pragma unroll
    for (int m = 0; m < Config::kRowTiles; ++m)
      ptx::ldmatrix_x4(a[m], shared_.weights + (m * 16 + lane_ % 16) * Config::kWeightStride + block * 16 +
                                 lane_ / 16 * 8);
#pragma unroll
    for (int i = 0; i < Config::kValueLoads; ++i) {
      if (!kEarly) take_values(block, i, keys);
      const uint32_t(&b)[4] = values_[kEarly ? block : 0][kEarly ? i : 0];  // two column tiles
#pragma unroll
      for (int m = 0; m < Config::kRowTiles; ++m) {
        ptx::mma_m16n8k16<T>(out_[m][2 * i], a[m], b[0], b[1]);
        ptx::mma_m16n8k16<T>(out_[m][2 * i + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// Leaves the normalised output in out_, sums and maxima in shared memory.
template <class T, class Config>
__device__ void DecodeCta<T, Config>::attend(int first, int last) {
  __syncthreads();  // the last request's readers of shared memory are done
  KeyPlace next = place_of(first * Config::kTokens + static_cast<int>(threadIdx.x) / kRowSharers);
  look_up(&next);
  const auto load = [&](int tile, int stage) {
    if (tile < last) load_keys(next, stage);
    ptx::cp_async_commit();  // an empty group counts, too
    advance(&next);
    look_up(&next);
  };
  if constexpr (Config::kHasCodes)
    load_query_codes();
  else
    load_query();
  ptx::cp_async_commit();  // the query alone
  for (int i = 0; i < stages_ - 1; ++i) load(first + i, i);
#pragma unroll
  for (int m = 0; m < Config::kRowTiles; ++m)
#pragma unroll
    for (int n = 0; n < Config::kValueTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) out_[m][n][i] = 0;
  max_ = -INFINITY;
  sum_ = weight_sum_ = 0;
  wait_for_all_but(stages_ - 1);
  __syncthreads();  // the query: all to all
  if (Config::kKeepsQuery) {
#pragma unroll
    for (int i = 0; i < Config::kPartSteps; ++i) take_query(i);
  }
#pragma unroll
  for (int g = 0; g < Config::kScaleGroups; ++g) unit_[g] = kLeastUnit;

  int stage = 0;
  for (int tile = first; tile < last; ++tile) {
    wait_for_all_but(stages_ - 2);  // one group a tile: then this tile has landed
    __syncthreads();  // writers: every thread's cp.async; readers: score. Also frees the stage that is
                      // refilled next
    const unsigned char* keys = keys_ + stage * Config::kStageBytes;
    if constexpr (Config::kHasCodes)
      score_codes(keys);
    else
      score(reinterpret_cast<const T*>(keys));
    load(tile + stages_ - 1, stage == 0 ? stages_ - 1 : stage - 1);
    if (kEarly) {
#pragma unroll
      for (int block = 0; block < kTokenBlocks; ++block)
#pragma unroll
        for (int i = 0; i < Config::kValueLoads; ++i) take_values(block, i, keys);
    }
    __syncthreads();  // scores: warps to softening threads
    soften(tile, keys);
    __syncthreads();  // weights, rescale: softening threads to warps
    rescale_output();
    if constexpr (Config::kHasCodes)
      add_value_codes(keys);
    else
      add_values(keys);
    stage = stage + 1 == stages_ ? 0 : stage + 1;
  }
  __syncthreads();  // rescale: the last add_values is done with it
  constexpr int kSharers = Config::kThreads / Config::kRows;
#pragma unroll
  for (int d = 1; d < kSharers; d *= 2) {
    sum_ += __shfl_xor_sync(0xFFFFFFFFu, sum_, d);
    weight_sum_ += __shfl_xor_sync(0xFFFFFFFFu, weight_sum_, d);
  }
  if (threadIdx.x % kSharers == 0) {
    shared_.row_max[threadIdx.x / kSharers] = max_;
    shared_.row_sum[threadIdx.x / kSharers] = sum_;
    shared_.rescale[threadIdx.x / kSharers] = weight_sum_;
  }
  __syncthreads();  // sums: softening threads to warps
#pragma unroll
  for (int m = 0; m < Config::kRowTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = shared_.rescale[m * 16 + lane_ / 4 + half * 8];
      const float factor = sum > 0 ? output_unit() / sum : 0.0f;
#pragma unroll
      for (int n = 0; n < Config::kValueTiles; ++n) {
        out_[m][n][half * 2] *= factor;
        out_[m][n][half * 2 + 1] *= factor;
      }
    }
  __syncthreads();  // sums are read; from here on row_max holds the natural-log LSE
  if (threadIdx.x < Config::kRows) {
    const float sum = shared_.row_sum[threadIdx.x];
    shared_.row_max[threadIdx.x] = sum > 0 ? (shared_.row_max[threadIdx.x] + log2f(sum)) * kLn2 : -INFINITY;
  }
  __syncthreads();
}

template <class T, class Config>
__device__ float DecodeCta<T, Config>::output_unit() const {
  float unit = Config::kHasCodes ? p_.cache_scale : 1.0f;
  if constexpr (Config::kCodes == Codes::kBlocks) unit = 1.0f / lift_of(own_unit_);
  return unit;
}

}  // namespace latent::attention::cuda
