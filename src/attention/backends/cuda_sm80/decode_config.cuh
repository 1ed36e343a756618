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
  static constexpr int kWarps = 8;
  static constexpr int kThreads = kWarps * 32;

  // Scores: the warps form a grid of row tiles of 16 by columns of tokens, for each half of the columns of
  // keys and queries; the softmax adds the halves. So a warp can keep its fragments of the query in
  // registers. With 64 rows the output leaves no room for them, nor shared memory on GPUs with 163 KB for two
  // sets of scores.
  static constexpr int kRowTiles = kRows / 16;
  static constexpr bool kKeepsQuery = kRows < 64;
  static constexpr int kKeyParts = kKeepsQuery ? 2 : 1;
  static constexpr int kColumnWarps = kWarps / kRowTiles / kKeyParts;
  static constexpr int kScoreTiles = kTokens / 8 / kColumnWarps;  // column tiles of 8 tokens a warp
  static constexpr int kChains = kScoreTiles == 1 ? 4 : 2;        // sums side by side, so that none waits
  // Values: every warp takes all rows and kRank / kWarps columns, 32 bytes of 16 tokens a load. Where there
  // are registers it loads them before it waits for the weights.
  static constexpr int kValueTiles = kRank / kWarps / 8;
  static constexpr int kValueLoads = kValueTiles / (kHasCodes ? 4 : 2);
  static constexpr bool kLoadsValuesEarly = kRows == 16;

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
  // Keys of a tile are loaded so many columns at a time for scores, values half as many.
  static constexpr int kStepColumns = kHasCodes ? 64 : 32;
  static constexpr int kSteps = (kHasCodes ? CodeRow::kColumns : kWidth) / kStepColumns;
  static constexpr int kPartSteps = (kSteps + kKeyParts - 1) / kKeyParts;  // of a warp, at most
  static constexpr int kStepFragments = kStepColumns / 16;                 // of the query, 16 columns each
  static_assert(kWidth % 32 == 0 && (!kHasCodes || (CodeRow::kColumns % 64 == 0 && kValueTiles % 4 == 0)));
  static_assert(kCodes != Codes::kBlocks || kPartSteps % 2 == 0, "a part has whole blocks of 128 columns");
  static_assert(kCodes != Codes::kBlocks || 128 % (kRank / kWarps) == 0, "a warp's columns share a scale");

  struct alignas(16) Shared {
    Product query[kRows * kKeyStride];
    Product weights[kScaleGroups * kRows * kWeightStride];  // softmax numerators of the current tile
    float scores[kKeyParts][kRows * kScoreStride];          // of the current tile
    float query_drop[kRows];  // of queries that meet codes: their factor, a power of two
    float rescale[kRows];     // factor of the output so far
    float row_sum[kRows];     // final
    float row_max[kRows];     // final, in the base-2 domain
    int32_t flag;
  };
  // A row of the cache, and where it lies in shared memory.
  static constexpr int kElementBytes = kHasCodes ? 1 : sizeof(T);
  static constexpr int kRowBytes = kHasCodes ? CodeRow::kBytes : kWidth * kElementBytes;
  static constexpr int kRowStrideBytes = kHasCodes ? CodeRow::kStride : kKeyStride * kElementBytes;
  static constexpr int kStageBytes = kTokens * kRowStrideBytes;
  static_assert(kRowBytes % 16 == 0 && kThreads % kTokens == 0);

  static constexpr int shared_bytes(int stages) {
    return static_cast<int>(sizeof(Shared)) + stages * kStageBytes;
  }
  static constexpr int kLeastShared = kRows == 16 ? 101376 : 166912;  // of the GPUs that this is for
  static_assert(sizeof(Shared) + 2 * kStageBytes <= kLeastShared);
};

}  // namespace latent::attention::cuda
