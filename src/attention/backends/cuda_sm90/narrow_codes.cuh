// SPDX-License-Identifier: Apache-2.0
// The narrow decode kernel over a cache of e4m3 codes (ops/kv_layout.h).
//
// The copy engine brings tiles of 64 tokens as they are, rows of bytes. A thread of a warpgroup loads what it
// needs of them with ldmatrix, turns it into f16, exactly, and hands it to the tensor cores as the operand A
// in registers: nothing goes back to shared memory, and the operands B, queries and weights, stay there.
//
//   S^T [64 tokens, rows] = K . Q^T     a register of four neighbouring columns is two of the operand, if the
//                                       query's columns come in the order 0 1 4 5 8 9 12 13 2 3 6 7 10 11 14
//                                       15
//   O^T [rank, rows]     += V^T . P^T   a register that a transposed load gives holds two columns of two
//                                       tokens: rows 0..7 of 16 are the even columns of 16, rows 8..15 the
//                                       odd ones
//
// Queries are lifted to f16 by a power of two a row; scales multiply sums of products. The scale of a block
// of 128 columns goes into the weights of its values, a set of weights a block, in units of the largest so
// far. A rope key in bf16 meets its query in bf16.
#pragma once

#include "attention/backends/cuda_sm90/narrow_cta.cuh"

namespace latent::attention::cuda {

// --- The copy warp ---

template <class T, class Config>
__device__ void NarrowCta<T, Config>::feed_tile_codes(int tile, int pages, int32_t id) {
  const int box_tokens = min(p_.page_tokens, Config::kTokens), bytes = box_tokens * Config::CodeRow::kStride;
  uint64_t* full = &small_.full[cursor_.slot];
  ptx::mbarrier_wait(&small_.empty[cursor_.slot], cursor_.phase ^ 1);
  if (lane_ == 0) ptx::mbarrier_arrive_expect(full, pages * bytes);
  __syncwarp();
  if (lane_ < pages)
    ptx::tma_load_3d(box(cursor_.slot) + lane_ * bytes, map_, 0, tile * Config::kTokens % p_.page_tokens, id,
                     full, ptx::evict_first_policy());
  cursor_.skip(1);
}

// --- The warpgroups ---

template <class T, class Config>
__device__ void NarrowCta<T, Config>::load_query_codes() {
  constexpr int kSharers = Config::kConsumers / Config::kRows;  // threads of a row, neighbours in a warp
  constexpr int kChunks = Config::CodeRow::kColumns / 8, kMine = (kChunks + kSharers - 1) / kSharers;
  const int local = threadIdx.x / kSharers, sharer = threadIdx.x % kSharers;
  const bool live = row(local) < num_rows_;
  const QueryRow from = query_row(live ? local : 0);
  uint4 chunks[kMine];
  float largest = 0;
#pragma unroll
  for (int j = 0; j < kMine; ++j) {
    const int column = (sharer + j * kSharers) * 8;
    chunks[j] = make_uint4(0, 0, 0, 0);
    if (live && column < Config::CodeRow::kColumns)
      chunks[j] = __ldg(reinterpret_cast<const uint4*>(
          column < Config::kRank ? from.nope + column : from.pe + column - Config::kRank));
    const T* x = reinterpret_cast<const T*>(&chunks[j]);
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(to_float(x[i])));
  }
#pragma unroll
  for (int d = 1; d < kSharers; d *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, d));
  const QueryLift query(largest);
  if (sharer == 0) reinterpret_cast<float*>(small_.query_drop)[local] = query.drop;
#pragma unroll
  for (int j = 0; j < kMine; ++j) {
    const int chunk = sharer + j * kSharers;
    if (chunk >= kChunks) break;
    const T* x = reinterpret_cast<const T*>(&chunks[j]);
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pairs[i] = pack<Product>(to_float(x[2 * i]) * query.lift, to_float(x[2 * i + 1]) * query.lift);
    unsigned char* to = query_ + chunk / 8 * Config::kQueryBoxBytes;
    const int even = chunk % 8 / 2 * 2, half = chunk % 2 * 8;
    *reinterpret_cast<uint2*>(to + swizzled(local, even) + half) = make_uint2(pairs[0], pairs[2]);
    *reinterpret_cast<uint2*>(to + swizzled(local, even + 1) + half) = make_uint2(pairs[1], pairs[3]);
  }
  if constexpr (Config::kCodes == Codes::kBlocks) {
#pragma unroll
    for (int chunk = sharer; chunk < Config::kRope / 8; chunk += kSharers)
      *reinterpret_cast<uint4*>(query_ + Config::kValueBoxes * Config::kQueryBoxBytes +
                                swizzled(local, chunk)) =
          live ? __ldg(reinterpret_cast<const uint4*>(from.pe + chunk * 8)) : make_uint4(0, 0, 0, 0);
  }
}

// Codes of two operands: columns [column, column + 16) and the 16 after of this warp's 16 tokens; tokens 0..7
// and 8..15 of the first 16 columns, then of the others.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::load_keys(uint32_t (&codes)[4], const unsigned char* keys,
                                                int column) const {
  ptx::ldmatrix_x4(
      codes, keys + (warp_ % 4 * 16 + lane_ % 16) * Config::CodeRow::kStride + column + lane_ / 16 * 16);
}
__device__ inline void keys_from_codes(uint32_t (&a)[2][4], const uint32_t (&codes)[4]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    a[i][0] = decode2<0>(codes[2 * i]);
    a[i][1] = decode2<0>(codes[2 * i + 1]);
    a[i][2] = decode2<1>(codes[2 * i]);
    a[i][3] = decode2<1>(codes[2 * i + 1]);
  }
}

// Codes of two operands: this warp's 16 columns of the box, tokens [token, token + 16) and the 16 after; 8
// tokens a register.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::load_values(uint32_t (&codes)[4], const unsigned char* keys, int box,
                                                  int token) const {
  ptx::ldmatrix_x4_trans(
      codes, keys + (token + lane_) * Config::CodeRow::kStride + box * Config::kBoxColumns + warp_ % 4 * 16);
}
__device__ inline void values_from_codes(uint32_t (&a)[2][4], const uint32_t (&codes)[4]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t near = __byte_perm(codes[2 * i], 0, 0x3120),
                   far = __byte_perm(codes[2 * i + 1], 0, 0x3120);
    a[i][0] = decode2<0>(near);
    a[i][1] = decode2<1>(near);
    a[i][2] = decode2<0>(far);
    a[i][3] = decode2<1>(far);
  }
}

// d (+)= rope keys in bf16 . their part of the query, in products that the caller waits for.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::multiply_rope(float (&d)[Config::kScores], const unsigned char* keys,
                                                    bool accumulate) {
  const uint64_t query = ptx::matrix_descriptor(query_ + Config::kValueBoxes * Config::kQueryBoxBytes);
  uint32_t a[Config::kRope / 16][4];
#pragma unroll
  for (int k = 0; k < Config::kRope / 16; ++k)
    ptx::ldmatrix_x4(a[k], keys + (warp_ % 4 * 16 + lane_ % 16) * Config::CodeRow::kStride +
                               Config::CodeRow::kRopeAt + k * 32 + lane_ / 16 * 16);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < Config::kRope / 16; ++k)
    ptx::wgmma_rs<T>(d, a[k], ptx::advance(query, k * 32), accumulate || k > 0);
  ptx::wgmma_commit();
}

// S^T of the tile at `keys`. Operands of 32 columns at a time, two of them in a group of products and two
// groups under way; with 16 rows products that follow one another go to different sums.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::score_codes(float (&s)[Config::kScores], const unsigned char* keys) {
  constexpr bool kBlocks = Config::kCodes == Codes::kBlocks;
  constexpr int kChains = Config::kChains, kSets = Config::CodeRow::kColumns / 32;
  static_assert(kSets % 2 == 0 && (!kBlocks || kSets == 4 * Config::kScaleGroups));
  // Blocks in turns where there is a sum for each.
  const auto column_of = [](int set) {
    return kBlocks && kChains == 4 ? set % 4 * 128 + set / 4 * 32 : set * 32;
  };
  const uint64_t query = ptx::matrix_descriptor(query_);
  const int token = warp_ % 4 * 16 + lane_ / 4;
  float4 low_scales, high_scales;
  if constexpr (kBlocks) low_scales = scales_of(keys, token), high_scales = scales_of(keys, token + 8);
  float sums[kChains][Config::kScores];
#pragma unroll
  for (int i = 0; i < Config::kScores; ++i) s[i] = 0;
  const auto add_sums = [&](int chain, int group) {
    const float* low = reinterpret_cast<const float*>(&low_scales);
    const float* high = reinterpret_cast<const float*>(&high_scales);
#pragma unroll
    for (int i = 0; i < Config::kScores; ++i)
      s[i] =
          kBlocks ? fmaf(sums[chain][i], i % 4 < 2 ? low[group] : high[group], s[i]) : s[i] + sums[chain][i];
  };
  constexpr bool kRopeFirst = kBlocks && kChains > 1;  // where a sum of its own finds room
  float rope[Config::kScores];
  uint32_t codes[2][4], a[2][2][2][4];  // [set]; [group of products][set][operand]
  const auto load = [&](int set) {
    load_keys(codes[0], keys, column_of(set));
    load_keys(codes[1], keys, column_of(set + 1));
  };
  if constexpr (Config::kLoadsAhead) load(0);
  if constexpr (kRopeFirst) multiply_rope(rope, keys, false);
#pragma unroll
  for (int set = 0; set < kSets; set += 2) {
    uint32_t(&now)[2][2][4] = a[set / 2 % 2];
    if (set >= 4) ptx::wgmma_wait<1>();
    if constexpr (!Config::kLoadsAhead) load(set);
    keys_from_codes(now[0], codes[0]);
    keys_from_codes(now[1], codes[1]);
    if (Config::kLoadsAhead && set + 2 < kSets) load(set + 2);
    ptx::wgmma_fence();
#pragma unroll
    for (int operand = 0; operand < 2; ++operand)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int column = column_of(set + i), in_chain = set + i;
        const bool fresh = operand == 0 && (kBlocks && kChains == 1 ? in_chain % 4 == 0 : in_chain < kChains);
        ptx::wgmma_rs<Product>(
            sums[in_chain % kChains], now[i][operand],
            ptx::advance(query, column / 64 * Config::kQueryBoxBytes + column % 64 * 2 + operand * 32),
            !fresh);
      }
    ptx::wgmma_commit();
    if constexpr (kBlocks && kChains == 1) {
      if (set % 4 == 2) {
        ptx::wgmma_wait<0>();
        ptx::pin(sums[0]);
        add_sums(0, set / 4);
      }
    }
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int c = 0; c < kChains; ++c) ptx::pin(sums[c]);
  if constexpr (!kBlocks || kChains > 1) {
#pragma unroll
    for (int c = 0; c < kChains; ++c) add_sums(c, c);
  }
  const float scale = kBlocks ? 1.0f : p_.cache_scale;
#pragma unroll
  for (int i = 0; i < Config::kScores; i += 4) {
    const float2 drop = small_.query_drop[i + lane_ % 4];
    s[i] *= drop.x * scale;
    s[i + 1] *= drop.y * scale;
    s[i + 2] *= drop.x * scale;
    s[i + 3] *= drop.y * scale;
  }
  if constexpr (kRopeFirst) {
    ptx::pin(rope);
#pragma unroll
    for (int i = 0; i < Config::kScores; ++i) s[i] += rope[i];
  } else if constexpr (kBlocks) {
    ptx::pin(s);
    multiply_rope(s, keys, true);
    ptx::wgmma_wait<0>();
    ptx::pin(s);
  }
}

// The units grow to the scales of the tile; every warp of the group finds the same.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::widen_units(const unsigned char* keys) {
  const float4 a = scales_of(keys, lane_), b = scales_of(keys, lane_ + 32);
  const float of_a[] = {a.x, a.y, a.z, a.w}, of_b[] = {b.x, b.y, b.z, b.w};
#pragma unroll
  for (int g = 0; g < Config::kScaleGroups; ++g) {
    const uint32_t mine = max(__float_as_uint(of_a[g]) & 0x7F800000u, __float_as_uint(of_b[g]) & 0x7F800000u);
    const uint32_t unit = max(unit_[g], min(__reduce_max_sync(0xFFFFFFFFu, mine), kLargestUnit));
    unit_ratio_[g] = unit_ratio(unit_[g], unit);
    unit_[g] = unit;
  }
}

// One set of weights a block. A key that the row does not see has no part, whatever its scales are.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::store_scaled_weights(const float (&s)[Config::kScores],
                                                           const unsigned char* keys) {
  const int token = warp_ % 4 * 16 + lane_ / 4;
  const float4 a = scales_of(keys, token), b = scales_of(keys, token + 8);
  const float scales[2][4] = {{a.x, a.y, a.z, a.w}, {b.x, b.y, b.z, b.w}};
#pragma unroll
  for (int c = 0; c < Config::kColumns; ++c) rounded_[c] += s[c / 2 * 4 + c % 2] + s[c / 2 * 4 + c % 2 + 2];
#pragma unroll
  for (int g = 0; g < Config::kScaleGroups; ++g) {
    // 1 / unit; the weights are lifted already.
    const float per_unit = __uint_as_float((254u << 23) - unit_[g]);
    const float by[2] = {scales[0][g] * per_unit, scales[1][g] * per_unit};
    unsigned char* weights = weights_ + group() * Config::kWeightBytes + g * Config::kQueryBoxBytes;
    const auto scaled = [&](int at) { return s[at] == 0 ? 0.0f : s[at] * by[at % 4 / 2]; };
#pragma unroll
    for (int j = 0; j < Config::kRows / 8; j += 2) {
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = (j + i / 2) * 4 + i % 2 * 2;
        packed[i] = pack<Product>(scaled(at), scaled(at + 1));
      }
      const int to_row = (j + lane_ / 16) * 8 + lane_ % 8, chunk = warp_ % 4 * 2 + lane_ / 8 % 2;
      ptx::stmatrix_x4_trans(weights + swizzled(to_row, chunk), packed);
    }
  }
}

// The weights that all warps of the group have stored, times the values.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::add_value_codes(const unsigned char* keys) {
  constexpr int kSets = Config::kValueBoxes * 2;
  const uint64_t weights = ptx::matrix_descriptor(weights_ + group() * Config::kWeightBytes);
  uint32_t codes[2][4], a[2][2][2][4];  // as in score_codes
  const auto load = [&](int set) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      load_values(codes[i], keys, set % Config::kValueBoxes + i, set / Config::kValueBoxes * 32);
  };
  if constexpr (Config::kLoadsAhead) load(0);
  ptx::fence_async_shared();
  group_sync();  // weights: all to the tensor cores
#pragma unroll
  for (int set = 0; set < kSets; set += 2) {
    const int b = set % Config::kValueBoxes, token = set / Config::kValueBoxes * 32;
    const int block = Config::kCodes == Codes::kBlocks ? b / 2 : 0;
    uint32_t(&now)[2][2][4] = a[set / 2 % 2];
    if (set >= 4) ptx::wgmma_wait<1>();
    if constexpr (!Config::kLoadsAhead) load(set);
    values_from_codes(now[0], codes[0]);
    values_from_codes(now[1], codes[1]);
    if (Config::kLoadsAhead && set + 2 < kSets) load(set + 2);
    ptx::wgmma_fence();
#pragma unroll
    for (int operand = 0; operand < 2; ++operand)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        ptx::wgmma_rs<Product>(
            out_[b + i], now[i][operand],
            ptx::advance(weights, block * Config::kQueryBoxBytes + (token + operand * 16) * 2), true);
    ptx::wgmma_commit();
  }
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int b = 0; b < Config::kValueBoxes; ++b) ptx::pin(out_[b]);
}

// As attend().
template <class T, class Config>
__device__ void NarrowCta<T, Config>::attend_codes(int first, int last) {
  consumer_sync();  // the request before is merged: the query's memory is free
  load_query_codes();
#pragma unroll
  for (int b = 0; b < Config::kValueBoxes; ++b)
#pragma unroll
    for (int i = 0; i < Config::kScores; ++i) out_[b][i] = 0;
#pragma unroll
  for (int c = 0; c < Config::kColumns; ++c) {
    max_[c] = -INFINITY;
    sum_[c] = rounded_[c] = 0;
  }
#pragma unroll
  for (int g = 0; g < Config::kScaleGroups; ++g) unit_[g] = kLeastUnit;
  ptx::fence_async_shared();
  consumer_sync();  // the query: all to all
  for (int tile = first; tile < last; ++tile, cursor_.skip(1)) {
    if ((tile - first) % Config::kGroups != group()) continue;
    unsigned char* keys = box(cursor_.slot);
    ptx::mbarrier_wait(&small_.full[cursor_.slot], cursor_.phase);
    const int live = kv_len_ - tile * Config::kTokens;
    if (live < Config::kTokens) {  // codes, scales and all
      for (int i = live * Config::CodeRow::kStride + threadIdx.x % Config::kGroupThreads * 16;
           i < Config::kSlotBytes; i += Config::kGroupThreads * 16)
        *reinterpret_cast<uint4*>(keys + i) = make_uint4(0, 0, 0, 0);
      __syncwarp();
      group_sync();  // zeros: all to all
    }
    float s[Config::kScores];
    if constexpr (Config::kCodes == Codes::kBlocks) widen_units(keys);
    score_codes(s, keys);
    soften(s, tile, keys);
    add_value_codes(keys);
    release(cursor_, 1);
  }
  // Weights and their sums were lifted; outputs are in units of the scales.
#pragma unroll
  for (int c = 0; c < Config::kColumns; ++c) max_[c] -= kLogWeightLift;
#pragma unroll
  for (int b = 0; b < Config::kValueBoxes; ++b) {
    float unit = p_.cache_scale;
    if constexpr (Config::kCodes == Codes::kBlocks) unit = __uint_as_float(unit_[b / 2]);
#pragma unroll
    for (int i = 0; i < Config::kScores; ++i) out_[b][i] *= unit;
  }
}

// Four elements of the accumulator layout as a thread holds them: two rows, two neighbouring columns.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::write_four_codes(int four, const float4& x, bool valid) {
  constexpr int kBoxFours = Config::kFours * Config::kGroupThreads;
  const int thread = four % Config::kGroupThreads;
  const int column = four / kBoxFours * Config::kBoxColumns + thread / 32 * 16 + thread % 32 / 4 * 2;
  const int local = four % kBoxFours / Config::kGroupThreads * 8 + thread % 4 * 2;
#pragma unroll
  for (int odd = 0; odd < 2; ++odd) {
    const int r = row(local + odd);
    if (!valid || r >= num_rows_) continue;
    T* to = static_cast<T*>(p_.out) + (q_start_ + heads_.divide(r)) * p_.out_token_stride +
            heads_.remainder(r) * p_.out_head_stride + column;
    *reinterpret_cast<uint32_t*>(to) = odd ? pack<T>(x.y, x.w) : pack<T>(x.x, x.z);
  }
}

}  // namespace latent::attention::cuda
