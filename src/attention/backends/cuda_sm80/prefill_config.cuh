// SPDX-License-Identifier: Apache-2.0
// Tiles, threads and shared memory of the portable prefill kernel.
#pragma once

#include "attention/backends/cuda_common/prefill_items.cuh"
#include "attention/backends/cuda_sm80/prefill_launch.h"

namespace latent::attention::cuda {

// Queries and keys of kNope + kRope columns, values of kValue.
template <int kNope_, int kRope_, int kValue_>
struct Sm80PrefillConfig {
  static constexpr int kNope = kNope_;
  static constexpr int kRope = kRope_;
  static constexpr int kQk = kNope + kRope;
  static constexpr int kValue = kValue_;

  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kCtasPerSm = 2;  // one's softmax runs under the other's products
  // A fragment of keys or values feeds this many products; twice as many would be all of the registers.
  static constexpr int kRowTiles = kValue <= 128 ? 2 : 1;
  static constexpr int kWarpRows = 16 * kRowTiles;
  static constexpr int kRows = kWarps * kWarpRows;  // of an item
  static constexpr int kKeys = 64;                  // of a tile

  static constexpr int kQueryElements = kRows * kQk;
  static constexpr int kKeyElements = kKeys * kQk;
  static constexpr int kValueElements = kKeys * kValue;

  using Items = PrefillItems<kRows>;
  struct Small {
    alignas(8) unsigned char items[32][sizeof(Items)];  // of the lanes of the warp that draws
    PrefillItem item;
  };
  static constexpr int kSharedBytes =
      (kQueryElements + kKeyElements + kValueElements) * 2 + static_cast<int>(sizeof(Small));

  // Rows of whole 128 bytes, whose chunks of 16 are permuted.
  static_assert(kQk % 64 == 0 && kValue % 64 == 0);
  static_assert(kSharedBytes <= 99 * 1024);  // what every GPU since Ampere has

  // Columns that are there.
  __device__ static PrefillWidths widths(const PrefillWidths&) {
    return {.nope = kNope, .rope = kRope, .v = kValue};
  }
};

// Any widths of whole 16 bytes, up to kWidestPrefill; columns that are not there are zeros.
struct Sm80AnyPrefillConfig : Sm80PrefillConfig<kWidestPrefill, 0, kWidestPrefill> {
  __device__ static PrefillWidths widths(const PrefillWidths& given) { return given; }
};

}  // namespace latent::attention::cuda
