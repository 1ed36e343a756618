// SPDX-License-Identifier: Apache-2.0
// Tiles, threads and shared memory of the narrow decode kernel.
#pragma once

#include <cstdint>

namespace latent::attention::cuda {

// kRows query rows (heads x query tokens) a CTA, the N side of every product; kRank + kRope columns a cached
// token.
template <class T, int kRank_, int kRope_, int kRows_>
struct NarrowConfig {
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

  static constexpr int kGroups = 2;  // warpgroups that take tiles in turn
  static constexpr int kGroupThreads = 128;
  static constexpr int kConsumers = kGroups * kGroupThreads;
  static constexpr int kThreads = kConsumers + kGroupThreads;  // and the group whose first warp feeds them
  // Registers a thread once the groups have their roles; together no more than at the start.
  static constexpr int kFeederRegisters = 24;
  static constexpr int kConsumerRegisters = 240;

  static constexpr int kColumns = kRows / 4;               // query rows whose scores a thread holds
  static constexpr int kScores = kRows / 2;                // scores a thread holds
  static constexpr int kOwnBoxes = kValueBoxes / kGroups;  // value boxes whose output a group finishes

  static_assert(kRank % 128 == 0 && kRope <= kBoxColumns);
  static_assert(kRows == 16 || kRows == 32);

  // The output as fp32 in four-element pieces of the accumulator layout, "quads": [box][8 rows][thread of a
  // group].
  static constexpr int kQuads = kRows * kRank / 4;
  static constexpr int kQuadsPerRing = kBoxBytes / 16;  // quads that a box of the ring can hold
  static constexpr int kExchangeBoxes =
      kQuads / kQuadsPerRing;  // boxes that hold a CTA's output for its cluster

  struct Small {
    uint64_t full[32];
    uint64_t empty[32];
    uint64_t shared_out;              // every CTA of the cluster has put its output where the others see it
    uint64_t read_out;                // every CTA of the cluster has read it
    float4 warp_max[kGroups][kRows];  // of the current tile: a component a warp
    float4 warp_sum[kGroups][kRows];  // of the whole stretch
    float group_max[kGroups][kRows];  // of the whole stretch
    float lse[kRows];                 // of this CTA's output, base 2
    float merged_lse[kRows];
    int32_t exchange_slot;  // where this CTA's shared output begins in its ring
    int32_t peer_slot[8];   // and where those of its cluster do
    int32_t flag;
  };
  static constexpr int kSharedLimit = 232448;  // 227 KiB
  static constexpr int kFixedBytes = 1024 /* alignment */ + kBoxes * kQueryBoxBytes +
                                     kGroups * kQueryBoxBytes + static_cast<int>(sizeof(Small));
  static constexpr int kFit = (kSharedLimit - kFixedBytes) / kBoxBytes;
  static constexpr int kSlots = kFit < 32 ? kFit : 32;
  static constexpr int kSharedBytes = kFixedBytes + kSlots * kBoxBytes;
  static_assert(kSlots >= 2 * kBoxes, "both groups hold a tile");
  // Merging and writing pass through the query's memory.
  static_assert(kRows * (kRank / 2) * 4 <= kBoxes * kQueryBoxBytes);
};

}  // namespace latent::attention::cuda
