// SPDX-License-Identifier: Apache-2.0
// Tiles, threads and shared memory of the Hopper prefill kernel.
#pragma once

#include <cstdint>

#include "attention/backends/cuda_common/prefill_items.cuh"

namespace latent::attention::cuda {

// Queries and keys of kNope + kRope columns, values of kValue; kKeys keys a tile, as many as fit.
template <int kNope_, int kRope_, int kValue_, int kKeys_ = kValue_ <= 128 ? 128 : 80>
struct PrefillConfig {
  static constexpr int kNope = kNope_;
  static constexpr int kRope = kRope_;
  static constexpr int kValue = kValue_;
  static constexpr int kKeys = kKeys_;

  static constexpr int kGroups = 2;  // warpgroups that compute
  static constexpr int kGroupRows = 64;
  static constexpr int kRows = kGroups * kGroupRows;  // of an item
  static constexpr int kGroupThreads = 128;
  static constexpr int kConsumers = kGroups * kGroupThreads;
  static constexpr int kThreads = kConsumers + kGroupThreads;  // and the group whose first warp feeds them
  static constexpr int kFeederRegisters = 40;
  static constexpr int kConsumerRegisters = 232;

  // Operands lie in panels of 64 columns, rows of 128 bytes; a narrower last one is filled with zeros.
  static constexpr int kPanelColumns = 64;
  static constexpr int kRowBytes = 128;
  static constexpr int kNopePanels = kNope / kPanelColumns;
  static constexpr int kQkPanels = kNopePanels + (kRope > 0 ? 1 : 0);
  static constexpr int kValuePanels = kValue / kPanelColumns;
  static constexpr int kQueryPanelBytes = kGroupRows * kRowBytes;
  static constexpr int kKeyPanelBytes = kKeys * kRowBytes;
  static constexpr int kQueryBytes = kQkPanels * kQueryPanelBytes;  // of a group
  static constexpr int kKeyBytes = kQkPanels * kKeyPanelBytes;
  static constexpr int kValueBytes = kValuePanels * kKeyPanelBytes;
  static constexpr int kStages = 2;  // tiles of keys, and of values, in shared memory

  static_assert(kNope % kPanelColumns == 0 && kValue % kPanelColumns == 0);
  static_assert(kRope % 16 == 0 && kRope <= kPanelColumns);
  static_assert(kKeys % 16 == 0);

  static constexpr int kScores = kKeys / 2;  // scores a thread holds
  // A product that adds values covers this many columns.
  static constexpr int kValueColumns = kValue % 128 == 0 ? 128 : 64;
  static constexpr int kValueParts = kValue / kValueColumns;
  static constexpr int kOuts = kValueColumns / 2;  // outputs a thread holds, of each part

  static constexpr int kItemSlots = 2;

  struct Small {
    uint64_t query_full[kGroups], query_empty[kGroups];  // each group's rows apart
    uint64_t key_full[kStages], key_empty[kStages];
    uint64_t value_full[kStages], value_empty[kStages];
    uint64_t item_full[kItemSlots], item_empty[kItemSlots];
    PrefillItem item[kItemSlots];
    float anchor[kConsumers];  // written, never read
  };
  static constexpr int kSharedBytes =
      1024 + kGroups * kQueryBytes + kStages * (kKeyBytes + kValueBytes) + static_cast<int>(sizeof(Small));
  static_assert(kSharedBytes <= 227 * 1024);
};

}  // namespace latent::attention::cuda
