// SPDX-License-Identifier: Apache-2.0
// Keys and values as e4m3 codes (ops/kv_layout.h), turned into f16 on their way from shared memory to the
// tensor cores. Every code is an f16, so nothing is rounded:
//
//   scores   queries are lifted to f16 by a power of two a row; products run over the codes; the scale of the
//            cache, or of a token's block of 128 columns, multiplies their sums. A rope key in bf16 meets its
//            query in bf16, in products of their own.
//   values   the scale of a block goes into the weights, one set of them a block, in units of the largest
//            scale so far (a power of two); the scale of the cache goes into the output.
//
// A register of four neighbouring columns of a key is two operands of a product if the query's columns are
// in the order 0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15. A register that a transposed load gives
// holds two columns of two tokens: the tiles of the output take the even and the odd columns of 16.
#pragma once

#include "attention/backends/cuda_common/codes.cuh"
#include "attention/backends/cuda_sm80/decode_cta.cuh"

namespace latent::attention::cuda {

template <class T, class Config>
__device__ void DecodeCta<T, Config>::load_query_codes() {
  constexpr int kChunks = Config::CodeRow::kColumns / 8, kMine = (kChunks + 31) / 32;
  const T* nope = static_cast<const T*>(p_.q_nope);
  const T* pe = static_cast<const T*>(p_.q_pe);
  for (int local = warp_; local < Config::kRows; local += Config::kWarps) {
    const bool live = row(local) < num_rows_;
    const int64_t token = q_start_ + (live ? row(local) / p_.num_heads : 0);
    const int64_t head = live ? row(local) % p_.num_heads : 0;
    const T* nope_row = nope + token * p_.q_nope_token_stride + head * p_.q_nope_head_stride;
    const T* pe_row = pe + token * p_.q_pe_token_stride + head * p_.q_pe_head_stride;
    uint4 chunks[kMine];
    float largest = 0;
#pragma unroll
    for (int j = 0; j < kMine; ++j) {
      const int column = (lane_ + 32 * j) * 8;
      chunks[j] = make_uint4(0, 0, 0, 0);
      if (live && column < Config::CodeRow::kColumns)
        chunks[j] = __ldg(reinterpret_cast<const uint4*>(
            column < Config::kRank ? nope_row + column : pe_row + column - Config::kRank));
      const T* x = reinterpret_cast<const T*>(&chunks[j]);
#pragma unroll
      for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(to_float(x[i])));
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, d));
    const QueryLift query(largest);
    if (lane_ == 0) shared_.query_drop[local] = query.drop;
    Product* to = shared_.query + local * Config::kKeyStride;
#pragma unroll
    for (int j = 0; j < kMine; ++j) {
      const int chunk = lane_ + 32 * j;
      if (chunk >= kChunks) break;
      const T* x = reinterpret_cast<const T*>(&chunks[j]);
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        pairs[i] = pack<Product>(to_float(x[2 * i]) * query.lift, to_float(x[2 * i + 1]) * query.lift);
      Product* block = to + chunk / 2 * 16 + chunk % 2 * 4;
      *reinterpret_cast<uint2*>(block) = make_uint2(pairs[0], pairs[2]);
      *reinterpret_cast<uint2*>(block + 8) = make_uint2(pairs[1], pairs[3]);
    }
    if constexpr (Config::kCodes == Codes::kBlocks)
      if (lane_ < Config::kRope / 8)
        *reinterpret_cast<uint4*>(to + Config::kRank + lane_ * 8) =
            live ? __ldg(reinterpret_cast<const uint4*>(pe_row + lane_ * 8)) : make_uint4(0, 0, 0, 0);
  }
}

template <class T, class Config>
__device__ void DecodeCta<T, Config>::score_codes(const unsigned char* keys) {
  const int first_token = score_token();
  // Four 8x8 blocks of 16-bit pairs: columns k..k+63 of 8 tokens.
  const unsigned char* key = keys + (first_token + lane_ % 8) * Config::CodeRow::kStride + lane_ / 8 * 16;
  float s[Config::kScoreTiles][4] = {}, sums[Config::kScoreTiles][2][4] = {};
  // Adds what was summed since the last time, times its scale: `scale(token)`.
  const auto scale_sums = [&](const auto& scale) {
#pragma unroll
    for (int n = 0; n < Config::kScoreTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[n][i] =
            fmaf(scale(first_token + n * 8 + lane_ % 4 * 2 + i % 2), sums[n][0][i] + sums[n][1][i], s[n][i]);
        sums[n][0][i] = sums[n][1][i] = 0;
      }
  };
  constexpr int kAtOnce = Config::kKeepsQuery ? 2 : 1;  // steps whose keys are loaded before their products
#pragma unroll
  for (int first = 0; first < Config::kPartSteps; first += kAtOnce) {
    uint32_t b[kAtOnce][Config::kScoreTiles][4];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
      for (int n = 0; n < Config::kScoreTiles; ++n)
        if (has_step(first + i))
          ptx::ldmatrix_x4(b[i][n], key + n * 8 * Config::CodeRow::kStride +
                                        (first_step() + first + i) * Config::kStepColumns);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int step = first + i;
      if (!has_step(step)) break;
      if (!Config::kKeepsQuery) take_query(step);
      const auto& query = query_[Config::kKeepsQuery ? step : 0];
#pragma unroll
      for (int n = 0; n < Config::kScoreTiles; ++n)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          ptx::mma_m16n8k16<Product>(sums[n][j % 2], query[j], decode2<0>(b[i][n][j]),
                                     decode2<1>(b[i][n][j]));
      if (Config::kCodes == Codes::kBlocks && step % 2 == 1)
        scale_sums([&](int token) {
          return reinterpret_cast<const float*>(keys + token * Config::CodeRow::kStride +
                                                Config::kRank)[(first_step() + step) / 2];
        });
    }
  }
  if (Config::kCodes == Codes::kOneScale) scale_sums([&](int) { return p_.cache_scale; });
  const float low = shared_.query_drop[score_row_tile() * 16 + lane_ / 4];
  const float high = shared_.query_drop[score_row_tile() * 16 + lane_ / 4 + 8];
#pragma unroll
  for (int n = 0; n < Config::kScoreTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] *= i < 2 ? low : high;
  if (Config::kCodes == Codes::kBlocks && key_part() == 0) {
#pragma unroll
    for (int k = 0; k < Config::kRope; k += 32) {
      uint32_t a0[4], a1[4];
      ptx::ldmatrix_x4(a0, query_of_lane() + Config::kRank + k);
      ptx::ldmatrix_x4(a1, query_of_lane() + Config::kRank + k + 16);
#pragma unroll
      for (int n = 0; n < Config::kScoreTiles; ++n) {
        uint32_t b[4];
        ptx::ldmatrix_x4(b, key + n * 8 * Config::CodeRow::kStride + Config::CodeRow::kRopeAt + k * 2);
        ptx::mma_m16n8k16<T>(s[n], a0, b[0], b[1]);
        ptx::mma_m16n8k16<T>(s[n], a1, b[2], b[3]);
      }
    }
  }
  leave_scores(s);
}

// The units grow to the scales of the tile; every warp finds the same.
template <class T, class Config>
__device__ void DecodeCta<T, Config>::widen_units(const unsigned char* keys) {
  static_assert(Config::kTokens == 32, "a lane a token");
  const auto* scales =
      reinterpret_cast<const uint32_t*>(keys + lane_ * Config::CodeRow::kStride + Config::kRank);
#pragma unroll
  for (int g = 0; g < Config::kScaleGroups; ++g) {
    const uint32_t power = __reduce_max_sync(0xFFFFFFFFu, scales[g] & 0x7F800000u);
    const uint32_t unit = max(unit_[g], min(power, kLargestUnit));
    const float ratio = unit_ratio(unit_[g], unit);
    if (g == scale_group()) own_unit_ = unit;
    if (g == scale_group()) unit_rescale_ = ratio;
    unit_[g] = unit;
  }
}

template <class T, class Config>
__device__ void DecodeCta<T, Config>::add_value_codes(const unsigned char* keys) {
  const int group = Config::kCodes == Codes::kBlocks ? scale_group() : 0;
  const Product* weights = shared_.weights + group * Config::kRows * Config::kWeightStride;
#pragma unroll
  for (int block = 0; block < kTokenBlocks; ++block) {
    uint32_t a[Config::kRowTiles][4];
#pragma unroll
    for (int m = 0; m < Config::kRowTiles; ++m)
      ptx::ldmatrix_x4(a[m],
                       weights + (m * 16 + lane_ % 16) * Config::kWeightStride + block * 16 + lane_ / 16 * 8);
#pragma unroll
    for (int n = 0; n < Config::kValueTiles; n += 4) {
      if (!kEarly) take_values(block, n / 4, keys);
      // Of 16 columns each: the first 8 tokens, the other 8, the same of the next 16 columns.
      const uint32_t(&b)[4] = values_[kEarly ? block : 0][kEarly ? n / 4 : 0];
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const uint32_t near = __byte_perm(b[i], 0, 0x3120), far = __byte_perm(b[i + 1], 0, 0x3120);
        const uint32_t even[2] = {decode2<0>(near), decode2<0>(far)};
        const uint32_t odd[2] = {decode2<1>(near), decode2<1>(far)};
#pragma unroll
        for (int m = 0; m < Config::kRowTiles; ++m) {
          ptx::mma_m16n8k16<Product>(out_[m][n + i], a[m], even[0], even[1]);
          ptx::mma_m16n8k16<Product>(out_[m][n + i + 1], a[m], odd[0], odd[1]);
        }
      }
    }
  }
}

}  // namespace latent::attention::cuda
