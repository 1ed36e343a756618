// SPDX-License-Identifier: Apache-2.0
// Tiles, threads and shared memory of the wide decode kernel.
#pragma once

#include <cstdint>

#include "attention/backends/cuda_common/partition.cuh"

namespace latent::attention::cuda {

// 64 query rows (heads x query tokens) a CTA, the M side of every product; kRank + kRope columns a cached
// token.
template <class T, int kRank_, int kRope_>
struct WideConfig {
  static constexpr int kRank = kRank_;
  static constexpr int kRope = kRope_;
  static constexpr int kRows = 64;

  static constexpr int kTokens = 64;  // keys a tile
  // Boxes of 64 rows by 64 columns, rows of 128 bytes: of a tile as of the query. A narrower last one is
  // filled with zeros.
  static constexpr int kBoxColumns = 64;
  static constexpr int kRowBytes = 128;
  static constexpr int kBoxBytes = kTokens * kRowBytes;
  static constexpr int kRopeBoxes = kRope > 0 ? 1 : 0;
  static constexpr int kValueBoxes = kRank / kBoxColumns;
  static constexpr int kHalfBoxes = kValueBoxes / 2;  // of the columns of the output that a group holds
  static constexpr int kBoxes = kValueBoxes + kRopeBoxes;

  static constexpr int kGroupThreads = 128;
  static constexpr int kConsumers = 2 * kGroupThreads;
  static constexpr int kThreads = kConsumers + kGroupThreads;  // and the group that feeds them
  static constexpr int kQueryThreads = 96;                     // its warps but the first
  // Registers a thread once the groups have their roles; together no more than at the start.
  static constexpr int kFeederRegisters = 24;
  static constexpr int kConsumerRegisters = 240;
  static constexpr int kStartRegisters = 65536 / kThreads / 8 * 8;
  static_assert(kConsumers * kConsumerRegisters + kGroupThreads * kFeederRegisters <=
                kThreads * kStartRegisters);

  static constexpr int kScores = kTokens / 2;       // a thread's
  static constexpr int kOutputs = kHalfBoxes * 32;  // a thread's
  static constexpr int kQuads = kRows * kRank / 4;  // of the whole output: see wide_merge.cuh

  static_assert(kRank % 128 == 0 && kRope <= kBoxColumns);

  static constexpr int kSharedLimit = 232448;                    // 227 KiB
  static constexpr int kMatrixBytes = (kBoxes + 1) * kBoxBytes;  // query, weights
  static constexpr int kFit =
      (kSharedLimit - 1024 /* alignment */ - 2048 /* Small */ - kMatrixBytes) / (kBoxes * kBoxBytes);
  static constexpr int kStages = kFit < 3 ? kFit : 3;  // tiles in shared memory
  static constexpr int kSlots = kStages * kBoxes;

  // Cycles that a CTA waits for the pieces of the others.
  static constexpr int64_t kPatience = 1 << 18;
  static constexpr int kPiecesAtOnce = kBoxBytes / 4 / kRows;  // whose weights fit where a tile's were

  struct Small {
    int fixed, total, parts, even;  // of the line, see partition.cuh
    Cut begin, end;                 // of this part's stretch
    int first_share, end_share;     // of the merge of a request's pieces
    uint64_t full[kSlots];
    uint64_t empty[kSlots];
    uint64_t query_full, query_empty;
    float max[2][kRows];    // running maxima after a group's latest tile, base 2
    float sum[2][kRows];    // a group's weights as the products saw them
    float exact[2][kRows];  // and before they were rounded
  };

  static constexpr int kSharedBytes =
      1024 + kMatrixBytes + kSlots * kBoxBytes + static_cast<int>(sizeof(Small));
  static_assert(kStages >= 2 && sizeof(Small) <= 2048);
};

}  // namespace latent::attention::cuda
