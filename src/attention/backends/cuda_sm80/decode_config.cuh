// SPDX-License-Identifier: Apache-2.0
// Tiles, threads and shared memory of the portable decode kernel.
#pragma once

#include <cstdint>

namespace latent::attention::cuda {

// kRank + kRope columns a cached token; kRows query rows (heads x query tokens) a CTA.
template <class T, int kRank_, int kRope_, int kRows_>
struct DecodeConfig {
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
  static constexpr int kKeyStride = kWidth + kRowPad;
  static constexpr int kWeightStride = kTokens + kRowPad;
  static constexpr int kScoreStride = kTokens + 4;

  static_assert(kRank % (kWarps * 16) == 0, "a warp's columns come in pairs of 8, two by an ldmatrix");
  static_assert(kRope % 16 == 0, "the products run over 16 columns at a time");
  static_assert((kKeyStride * sizeof(T) / 16) % 2 == 1, "rows must start in different banks");

  struct alignas(16) Shared {
    T query[kRows * kKeyStride];
    T weights[kRows * kWeightStride];    // softmax numerators of the current tile
    float scores[kRows * kScoreStride];  // of the current tile
    float rescale[kRows];                // factor of the output so far
    float row_sum[kRows];                // final
    float row_max[kRows];                // final, in the base-2 domain
    int32_t flag;
  };
  static constexpr int kStageElements = kTokens * kKeyStride;

  static constexpr int shared_bytes(int stages) {
    return static_cast<int>(sizeof(Shared)) + stages * kStageElements * static_cast<int>(sizeof(T));
  }
};

}  // namespace latent::attention::cuda
