// SPDX-License-Identifier: Apache-2.0
// Who reads which keys. The requests' key tiles are laid end to end, each request with a fixed cost in front
// of it; the line is cut into stretches of equal cost, one a part. A cut that would leave a sliver moves to
// the request's border. Every CTA finds its own stretch from the lengths alone, so there is no plan to make,
// to copy, or to go stale under a captured graph; requests without keys cost nothing and get no part
// (contract C4). Where there are no more requests than parts and the longest would take little longer than an
// even share, each is one part's, uncut.
//
//   cost:    |f|  request 0        |f| request 2 |f|   request 3                  |
//   parts:   |---- part 0 ----|---- part 1 ----|---- part 2 ----|---- part 3 -----|
#pragma once

#include <cstdint>

namespace latent::attention::cuda {

struct PartitionRule {
  int tile_tokens;    // keys a tile
  int fixed_tiles;    // cost of starting a request, in tiles; not counted where most parts get one request at
                      // most
  int least_tiles;    // no piece is shorter than this unless the request is
  int least_stretch;  // no part gets less, so that tiny batches use fewer parts; at least least_tiles
  int merge_tiles;    // what a cut costs the request's last part
};

// A place on the line: tile `tile` of request `seq`, whose cost begins at `first`. {num_seqs, 0, total} is
// the end.
struct Cut {
  int seq;
  int tile;
  int64_t first;
};

struct Line {
  int64_t total;  // cost of everything
  int parts;      // stretches it is cut into
  int fixed;      // cost in front of every request
  bool uncut;     // part i is the i-th request that has keys

  __device__ int64_t bound(int part) const { return total * part / parts; }
};

__device__ inline int num_tiles(int kv_len, const PartitionRule& rule) {
  return (kv_len + rule.tile_tokens - 1) / rule.tile_tokens;
}

// Cost `at` within a request of `tiles` tiles, as a tile index; slivers move to the border.
__device__ inline int snap(int at, int tiles, const Line& line, const PartitionRule& rule) {
  const int tile = at - line.fixed;
  if (tile < rule.least_tiles) return 0;
  return tile > tiles - rule.least_tiles ? tiles : tile;
}

// Inclusive sum over the warp's lanes.
__device__ inline int warp_sum_scan(int x, int lane) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int y = __shfl_up_sync(0xFFFFFFFFu, x, d);
    if (lane >= d) x += y;
  }
  return x;
}

// Called by one full warp; every lane returns the same.
__device__ inline Line measure_line(const int32_t* kv_lens, int num_seqs, int max_parts,
                                    const PartitionRule& rule) {
  const int lane = threadIdx.x % 32;
  int64_t all_tiles = 0;
  int longest = 0, live = 0;
  for (int base = 0; base < num_seqs; base += 32) {
    const int seq = base + lane;
    const int tiles = seq < num_seqs ? num_tiles(kv_lens[seq], rule) : 0;
    all_tiles += __reduce_add_sync(0xFFFFFFFFu, tiles);
    longest = max(longest, __reduce_max_sync(0xFFFFFFFFu, tiles));
    live += __popc(__ballot_sync(0xFFFFFFFFu, tiles > 0));
  }
  Line line{.fixed = 2 * live <= max_parts ? 0 : rule.fixed_tiles};
  line.total = all_tiles + int64_t{live} * line.fixed;
  line.uncut = live <= max_parts && longest + line.fixed - rule.merge_tiles <= line.total / max_parts;
  const int64_t useful = line.uncut ? live : line.total / rule.least_stretch;
  line.parts = static_cast<int>(useful < 1 ? 1 : useful < max_parts ? useful : max_parts);
  return line;
}

// The stretch that is the `part`-th request with keys, whole. Called by one full warp; every lane returns the
// same.
__device__ inline void find_request(const int32_t* kv_lens, int num_seqs, int part, const PartitionRule& rule,
                                    Cut* begin, Cut* end) {
  const int lane = threadIdx.x % 32;
  int before = 0;
  for (int base = 0; base < num_seqs; base += 32) {
    const int seq = base + lane;
    const int len = seq < num_seqs ? kv_lens[seq] : 0;
    const unsigned live = __ballot_sync(0xFFFFFFFFu, len > 0);
    const bool mine = len > 0 && before + __popc(live & ((1u << lane) - 1)) == part;
    if (const unsigned hit = __ballot_sync(0xFFFFFFFFu, mine)) {
      const int source = __ffs(static_cast<int>(hit)) - 1;
      *begin = {base + source, 0, 0};
      *end = {base + source, num_tiles(__shfl_sync(0xFFFFFFFFu, len, source), rule), 0};
      return;
    }
    before += __popc(live);
  }
}

// The stretch [begin, end) of part `part`. Called by one full warp; every lane returns the same.
__device__ inline void find_stretch(const int32_t* kv_lens, int num_seqs, const Line& line, int part,
                                    const PartitionRule& rule, Cut* begin, Cut* end) {
  if (line.uncut) return find_request(kv_lens, num_seqs, part, rule, begin, end);
  const int lane = threadIdx.x % 32;
  const int64_t bounds[2] = {line.bound(part), line.bound(part + 1)};
  Cut cuts[2] = {{num_seqs, 0, line.total}, {num_seqs, 0, line.total}};
  int64_t before = 0;
  for (int base = 0; base < num_seqs; base += 32) {
    const int seq = base + lane;
    const int len = seq < num_seqs ? kv_lens[seq] : 0;
    const int cost = len > 0 ? num_tiles(len, rule) + line.fixed : 0;
    const int64_t first = before + warp_sum_scan(cost, lane) - cost;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool mine = cost > 0 && first <= bounds[i] && bounds[i] < first + cost;
      const unsigned hit = __ballot_sync(0xFFFFFFFFu, mine);
      if (hit == 0) continue;
      const int source = __ffs(static_cast<int>(hit)) - 1;
      const int tile = mine ? snap(static_cast<int>(bounds[i] - first), num_tiles(len, rule), line, rule) : 0;
      cuts[i] = {base + source, __shfl_sync(0xFFFFFFFFu, tile, source),
                 __shfl_sync(0xFFFFFFFFu, first, source)};
    }
    before += __reduce_add_sync(0xFFFFFFFFu, cost);
  }
  *begin = cuts[0];
  *end = cuts[1];
}

// How a request is cut: piece j belongs to part `first_part + j`.
struct Pieces {
  int first_part;
  int count;
};

__device__ inline Pieces find_pieces(const Line& line, int64_t first, int tiles, const PartitionRule& rule) {
  // Inner cuts are the bounds in [first + fixed + least, first + fixed + tiles - least].
  const int64_t low = first + line.fixed + rule.least_tiles;
  const int64_t high = first + line.fixed + tiles - rule.least_tiles;
  // bound(i) = floor(total * i / parts) >= low  <=>  i >= low * parts / total, rounded up.
  const int64_t lowest = (low * line.parts + line.total - 1) / line.total;
  const int64_t highest = ((high + 1) * line.parts - 1) / line.total;
  const int inner = high < low || highest < lowest ? 0 : static_cast<int>(highest - lowest + 1);
  return {static_cast<int>(lowest) - 1, inner + 1};
}

// Where the state of a piece is kept: a part holds at most the end of one cut request (slot 0) and the
// beginning of another (slot 1).
__device__ inline int slot_of(const Pieces& pieces, int piece) {
  return 2 * (pieces.first_part + piece) + (piece == 0 ? 1 : 0);
}

}  // namespace latent::attention::cuda
