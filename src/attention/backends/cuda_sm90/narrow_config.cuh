// SPDX-License-Identifier: Apache-2.0
// Tiles, threads and shared memory of the narrow decode kernel.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "attention/backends/cuda_common/codes.cuh"

namespace latent::attention::cuda {

// kRows query rows (heads x query tokens) a CTA, the N side of every product; kRank + kRope columns a cached
// token.
template <class T, int kRank_, int kRope_, int kRows_, Codes kCodes_ = Codes::kNone>
struct NarrowConfig {
  static constexpr Codes kCodes = kCodes_;
  static constexpr bool kHasCodes = kCodes != Codes::kNone;
  using CodeRow = cuda::CodeRow<kHasCodes ? kRank_ : 512, kHasCodes ? kRope_ : 64, kCodes>;
  static constexpr int kScaleGroups = CodeRow::kScaleGroups;
  using Product = std::conditional_t<kHasCodes, __half, T>;  // codes are multiplied as f16, exactly

  static constexpr int kRank = kRank_;
  static constexpr int kRope = kRope_;
  static constexpr int kRows = kRows_;

  static constexpr int kTokens = 64;  // keys a tile, the M side
  // A tile is loaded in boxes of 64 tokens by 64 columns, rows of 128 bytes; a narrower last one is filled
  // with zeros.
  static constexpr int kBoxColumns = 64;
  static constexpr int kValueBoxes = kRank / kBoxColumns;
  static constexpr int kBoxes = kValueBoxes + (kRope > 0 ? 1 : 0);
  static constexpr int kRowBytes = 128;
  static constexpr int kBoxBytes = kTokens * kRowBytes;
  static constexpr int kQueryBoxBytes = kRows * kRowBytes;
  // What the ring holds: boxes, or whole tiles of codes.
  static constexpr int kSlotBytes = kHasCodes ? kTokens * CodeRow::kStride : kBoxBytes;
  static constexpr int kTileSlots = kHasCodes ? 1 : kBoxes;
  static constexpr int kWeightBytes = kScaleGroups * kQueryBoxBytes;  // of a group

  static constexpr int kGroups = 2;  // warpgroups that take tiles in turn
  static constexpr int kGroupThreads = 128;
  static constexpr int kConsumers = kGroups * kGroupThreads;
  static constexpr int kThreads = kConsumers + kGroupThreads;  // and the group whose first warp feeds them
  // Registers a thread once the groups have their roles; together no more than at the start.
  static constexpr int kFeederRegisters = 56;
  static constexpr int kConsumerRegisters = 224;

  static constexpr int kColumns = kRows / 4;  // query rows whose scores a thread holds
  static constexpr int kScores = kRows / 2;   // scores a thread holds
  // Products of few rows are over before their results are there, so that several sums run side by side as
  // far as there are registers for them: partial scores, and outputs.
  static constexpr int kChains = kRows == 16 ? 4 : 1;
  // Codes of the next products are loaded before these; with 32 rows registers are short.
  static constexpr bool kLoadsAhead = kRows == 16;
  static constexpr int kSideBySide = kRows == 16 ? 4 : 1;

  // How long a CTA waits for the other pieces of a request, in cycles: about 150 us.
  static constexpr int64_t kPatience = 1 << 18;

  static_assert(kRank % 128 == 0 && kRope <= kBoxColumns);
  static_assert(kRows == 16 || kRows == 32);

  // Memory of the query; between requests that of what is merged: half an output at a time, or a weight for
  // every row of every piece.
  static constexpr int kMostParts = 160;  // more than any Hopper GPU has multiprocessors
  static constexpr int kQueryBytes =
      kBoxes * kQueryBoxBytes > kMostParts* kRows * 4 ? kBoxes* kQueryBoxBytes : kMostParts* kRows * 4;
  // When a stretch of a request ends, each group takes half of the boxes of the output and gives the other
  // half away, so many boxes at a time.
  static constexpr int kHalf = kValueBoxes / kGroups;
  static constexpr int kBoxesAtOnce = kBoxes / 4;
  static_assert(kHalf % kBoxesAtOnce == 0 && kGroups * kBoxesAtOnce * kRows * kBoxColumns * 4 <= kQueryBytes);
  static constexpr int kFours = kScores / 4;                   // of a thread and box
  static constexpr int kStateFours = kRows * kRank / 4;        // of a state
  static_assert(kGroups * kQueryBoxBytes >= kConsumers * 16);  // where threads add up what they merged

  // A group's softmax state of the stretch, base 2.
  struct State {
    float max[kRows];
    float4 exact[kRows];    // sum of the weights, a component a warp
    float4 rounded[kRows];  // sum of the weights as they met the values
  };
  struct Small {
    float2 query_drop[kRows / 2];  // of queries that meet codes: their factor, a power of two
    uint64_t full[32];
    uint64_t empty[32];
    float4 warp_max[kGroups][kRows];  // of the current tile: a component a warp
    State state[kGroups];
    float factor[kGroups][kRows];    // of a group's outputs in the whole
    float lse[kRows];                // of merged pieces, base 2
    int32_t first_share, end_share;  // of a merge, this CTA's
  };
  static constexpr int kSharedLimit = 232448;  // 227 KiB
  static constexpr int kFixedBytes =
      1024 /* alignment */ + kQueryBytes + kGroups * kWeightBytes + static_cast<int>(sizeof(Small));
  static constexpr int kFit = (kSharedLimit - kFixedBytes) / kSlotBytes;
  static constexpr int kSlots = kFit < 32 ? kFit : 32;
  static constexpr int kSharedBytes = kFixedBytes + kSlots * kSlotBytes;
  static_assert(kSlots >= 2 * kTileSlots, "both groups hold a tile");
};

}  // namespace latent::attention::cuda
