// SPDX-License-Identifier: Apache-2.0
// Tiles, threads and shared memory of the portable decode kernel.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "attention/backends/cuda_common/codes.cuh"

namespace latent::attention::cuda {

// kRank + kRope columns a cached token; kRows query rows (heads x query tokens) a CTA. T is the type of
// queries and outputs.
template <class T, int kRank_, int kRope_, int kRows_, Codes kCodes_ = Codes::kNone>
struct DecodeConfig {
  static constexpr Codes kCodes = kCodes_;
  static constexpr bool kHasCodes = kCodes != Codes::kNone;
  using Product = std::conditional_t<kHasCodes, __half, T>;  // codes are multiplied as f16, exactly
  static constexpr int kRank = kRank_;
  static constexpr int kRope = kRope_;
  static constexpr int kRows = kRows_;
  static constexpr int kWidth = kRank + kRope;
  static constexpr int kTokens = 32;  // keys a tile
  static constexpr int kWarps = kRows == 64 ? 8 : 4;
  static constexpr int kThreads = kWarps * 32;

  // Scores: the warps form a grid of row tiles of 16 by column tiles of 8 tokens.
  static constexpr int kRowTiles = kRows / 16;
  static constexpr int kColumnWarps = kWarps / kRowTiles;
  static constexpr int kScoreTiles = kTokens / 8 / kColumnWarps;  // column tiles a warp
  // Values: every warp takes all rows and kRank / kWarps columns.
  static constexpr int kValueTiles = kRank / kWarps / 8;

  // 16 bytes beyond the row make its length an odd multiple of 16, which keeps ldmatrix free of bank
  // conflicts.
  static constexpr int kRowPad = 8;
  static constexpr int kKeyStride = kWidth + kRowPad;  // of keys, where they are T, and of queries
  static constexpr int kWeightStride = kTokens + kRowPad;
  static constexpr int kScoreStride = kTokens + 4;

  static_assert(kRank % (kWarps * 16) == 0, "a warp's columns come in pairs of 8, two by an ldmatrix");
  static_assert(kRope % 16 == 0, "the products run over 16 columns at a time");
  static_assert((kKeyStride * sizeof(T) / 16) % 2 == 1, "rows must start in different banks");

  using CodeRow = cuda::CodeRow<kRank, kRope, kCodes>;
  static constexpr int kScaleGroups = CodeRow::kScaleGroups;
  static_assert(!kHasCodes || (CodeRow::kColumns % 64 == 0 && kValueTiles % 4 == 0),
                "codes are loaded 64 columns at a time for scores, 32 for values");
  static_assert(kCodes != Codes::kBlocks || 128 % (kRank / kWarps) == 0, "a warp's columns share a scale");

  struct alignas(16) Shared {
    Product query[kRows * kKeyStride];
    Product weights[kScaleGroups * kRows * kWeightStride];  // softmax numerators of the current tile
    float scores[kRows * kScoreStride];                     // of the current tile
    float query_drop[kRows];  // of queries that meet codes: their factor, a power of two
    float rescale[kRows];     // factor of the output so far
    float row_sum[kRows];     // final
    float row_max[kRows];     // final, in the base-2 domain
    int32_t flag;
  };
  static constexpr int kStageBytes =
      kTokens * (kHasCodes ? CodeRow::kStride : kKeyStride * static_cast<int>(sizeof(T)));

  static constexpr int shared_bytes(int stages) {
    return static_cast<int>(sizeof(Shared)) + stages * kStageBytes;
  }
};

}  // namespace latent::attention::cuda
