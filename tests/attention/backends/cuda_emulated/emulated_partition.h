// SPDX-License-Identifier: Apache-2.0
// What every CTA finds out about the keys it reads (cuda_common/partition.cuh), on the emulator.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace latent::testing {

struct FoundPieces {
  int first_part = 0, count = 0;
};

// Of one part: [begin, end) on the line of all requests' tiles; of nothing, begin_seq is the number of
// requests. Pieces of the first and of the last request, where these have keys here.
struct FoundStretch {
  int parts = 0;  // in use
  int begin_seq = 0, begin_tile = 0, end_seq = 0, end_tile = 0;
  FoundPieces of_first, of_last;
};

struct EmulatedRule {
  int tile_tokens = 64, fixed_tiles = 2, least_tiles = 1, least_stretch = 2, slack_tiles = 4;
};

// [max_parts]
std::vector<FoundStretch> find_stretches(std::span<const int32_t> kv_lens, int max_parts,
                                         const EmulatedRule& rule);

}  // namespace latent::testing
