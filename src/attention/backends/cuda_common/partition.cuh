// SPDX-License-Identifier: Apache-2.0
// Who reads which keys. Every CTA finds its own stretch from the lengths alone, so there is no plan to make,
// to copy, or to go stale under a captured graph; requests without keys cost nothing and get no part
// (contract C4).
//
// Even: where there are no more requests than parts, each request is cut into equal pieces of at most `even`
// tiles, a part a piece:
//
//   parts:   |- 0 -|- 1 -|- 2 -|  |-- 3 --|-- 4 --|  |---- 5 ----|
//            |   request 0     |  |   request 1   |  | request 2 |
//
// Line: where that would leave a part with much more than an even share, the requests' key tiles are laid end
// to end, each request with a fixed cost in front of it; the line is cut into stretches of equal cost, one a
// part. A cut that would leave a sliver moves to the request's border; where all requests are of one length
// and every part can have as many whole ones, all cuts are on borders.
//
//   cost:    |f|  request 0        |f| request 2 |f|   request 3                  |
//   parts:   |---- part 0 ----|---- part 1 ----|---- part 2 ----|---- part 3 -----|
#pragma once

#include <cstdint>

#include "attention/backends/cuda_common/fast_divisor.cuh"

namespace latent::attention::cuda {

struct PartitionRule {
  int tile_tokens;    // keys a tile, a power of two
  int fixed_tiles;    // cost of starting a request, in tiles; not counted where most parts get one request at
                      // most
  int least_tiles;    // no piece is shorter than this, of even ones half of this, unless the request is
  int least_stretch;  // no part gets less, so that tiny batches use fewer parts; at least least_tiles
  int slack_tiles;  // even pieces may be longer than an even share by this, what a second piece costs a part
};

// A place on the line: tile `tile` of request `seq`, whose cost (even: whose first part) begins at `first`.
// {num_seqs, 0, total} is the end.
struct Cut {
  int seq;
  int tile;
  int first;
};

struct Line {
  int total = 0;            // cost of everything
  int parts = 0;            // stretches it is cut into
  int fixed = 0;            // cost in front of every request
  FastDivisor even{0};      // longest piece; 0: laid on a line
  int share = 0, rest = 0;  // total = share * parts + rest

  // total * part / parts
  __device__ int bound(int part) const { return share * part + rest * part / parts; }
};

__device__ inline int num_tiles(int kv_len, const PartitionRule& rule) {
  return (kv_len + rule.tile_tokens - 1) >> (31 - __clz(rule.tile_tokens));
}

// The lengths of a batch in tiles, 32 requests at a time in the lanes of one full warp, kAhead such rows
// asked for ahead. The functions below want all lanes and give all lanes the same. Their loops stay loops:
// code that runs once is waited for line by line.
class BatchTiles {
 public:
  __device__ BatchTiles(const int32_t* kv_lens, int num_seqs, const PartitionRule& rule)
      : kv_lens_(kv_lens), num_seqs_(num_seqs), rule_(rule), lane_(threadIdx.x % 32) {
#pragma unroll
    for (int r = 0; r < kAhead; ++r) first_[r] = load(32 * r);
  }

  __device__ int num_seqs() const { return num_seqs_; }
  __device__ int lane() const { return lane_; }
  // Calls use(number of the first request, tiles of this lane's).
  template <class Use>
  __device__ void each_row(const Use& use) const {
    int lengths[kAhead];
#pragma unroll
    for (int r = 0; r < kAhead; ++r) lengths[r] = first_[r];
#pragma unroll 1
    for (int base = 0; base < num_seqs_; base += 32) {
      const int next = load(base + 32 * kAhead);
      use(base, num_tiles(lengths[0], rule_));
#pragma unroll
      for (int r = 1; r < kAhead; ++r) lengths[r - 1] = lengths[r];
      lengths[kAhead - 1] = next;
    }
  }

 private:
  static constexpr int kAhead = 4;

  __device__ int load(int base) const { return base + lane_ < num_seqs_ ? kv_lens_[base + lane_] : 0; }

  const int32_t* kv_lens_;
  int num_seqs_;
  const PartitionRule& rule_;
  int lane_;
  int first_[kAhead];  // lengths of the first rows
};

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

__device__ inline int num_pieces(int tiles, const FastDivisor& even) {
  return even.divide(tiles + even.divisor() - 1);
}

__device__ inline int count_pieces(const BatchTiles& batch, const FastDivisor& even) {
  int pieces = 0;
  batch.each_row([&](int, int tiles) { pieces += num_pieces(tiles, even); });
  return __reduce_add_sync(0xFFFFFFFFu, pieces);
}

// The shortest pieces that give no request's share to two parts; .even is 0 if there are none within the
// slack.
__device__ inline Line even_line(const BatchTiles& batch, int all_tiles, int max_parts,
                                 const PartitionRule& rule) {
  const int least = max((all_tiles + max_parts - 1) / max_parts, rule.least_stretch);
  const int most = least + rule.slack_tiles;
  const FastDivisor shortest(least), longest(most);
  int many = 0, few = 0;
  batch.each_row([&](int, int tiles) {
    many += num_pieces(tiles, shortest);
    few += num_pieces(tiles, longest);
  });
  many = __reduce_add_sync(0xFFFFFFFFu, many);
  few = __reduce_add_sync(0xFFFFFFFFu, few);
  if (few > max_parts) return {};
  if (many <= max_parts) return {.total = all_tiles, .parts = many, .even = shortest};
#pragma unroll 1
  for (int even = least + 1; even < most; ++even) {
    const FastDivisor divisor(even);
    const int parts = count_pieces(batch, divisor);
    if (parts <= max_parts) return {.total = all_tiles, .parts = parts, .even = divisor};
  }
  return {.total = all_tiles, .parts = few, .even = longest};
}

// Whole requests of `tiles` tiles each, as many a part; no parts if that leaves a part more than the slack
// over an even share.
__device__ inline Line whole_line(int live, int tiles, int max_parts, const PartitionRule& rule) {
  const int requests = (live + max_parts - 1) / max_parts, cost = tiles + rule.fixed_tiles;
  const int share = requests * cost, total = live * cost;
  if (live % requests != 0 || share - rule.slack_tiles > total / max_parts) return {};
  return {.total = total, .parts = live / requests, .fixed = rule.fixed_tiles, .share = share};
}

__device__ inline Line cut_line(int live, int all_tiles, int max_parts, const PartitionRule& rule) {
  Line line{.fixed = 2 * live <= max_parts ? 0 : rule.fixed_tiles};
  line.total = all_tiles + live * line.fixed;
  line.parts = max(1, min(line.total / rule.least_stretch, max_parts));
  line.share = line.total / line.parts;
  line.rest = line.total - line.share * line.parts;
  return line;
}

__device__ inline Line measure_line(const BatchTiles& batch, int max_parts, const PartitionRule& rule) {
  int all_tiles = 0, live = 0, longest = 0;
  batch.each_row([&](int, int tiles) {
    all_tiles += tiles;
    live += tiles > 0 ? 1 : 0;
    longest = max(longest, tiles);
  });
  all_tiles = __reduce_add_sync(0xFFFFFFFFu, all_tiles);
  live = __reduce_add_sync(0xFFFFFFFFu, live);
  longest = __reduce_max_sync(0xFFFFFFFFu, longest);
  if (live == 0) return {};
  Line line;
  if (live <= max_parts)
    line = even_line(batch, all_tiles, max_parts, rule);
  else if (all_tiles == live * longest)
    line = whole_line(live, longest, max_parts, rule);
  return line.parts > 0 ? line : cut_line(live, all_tiles, max_parts, rule);
}

// The stretch that is the `part`-th piece.
__device__ inline void find_even_piece(const BatchTiles& batch, const Line& line, int part, Cut* begin,
                                       Cut* end) {
  int before = 0;
  batch.each_row([&](int base, int tiles) {
    const int pieces = num_pieces(tiles, line.even), before_row = before;
    before += __reduce_add_sync(0xFFFFFFFFu, pieces);
    if (part < before_row || part >= before) return;
    const int first = before_row + warp_sum_scan(pieces, batch.lane()) - pieces;
    const unsigned hit = __ballot_sync(0xFFFFFFFFu, first <= part && part < first + pieces);
    const int source = __ffs(static_cast<int>(hit)) - 1;
    const int its_tiles = __shfl_sync(0xFFFFFFFFu, tiles, source);
    const int its_pieces = __shfl_sync(0xFFFFFFFFu, pieces, source);
    const int its_first = __shfl_sync(0xFFFFFFFFu, first, source);
    const int piece = part - its_first;
    *begin = {base + source, its_tiles * piece / its_pieces, its_first};
    *end = {base + source, its_tiles * (piece + 1) / its_pieces, its_first};
  });
}

// The stretch [begin, end) of part `part`.
__device__ inline void find_stretch(const BatchTiles& batch, const Line& line, int part,
                                    const PartitionRule& rule, Cut* begin, Cut* end) {
  *begin = *end = {batch.num_seqs(), 0, line.total};
  if (line.even.divisor() > 0) return find_even_piece(batch, line, part, begin, end);
  int before = 0;
  batch.each_row([&](int base, int tiles) {
    const int cost = tiles > 0 ? tiles + line.fixed : 0, before_row = before;
    before += __reduce_add_sync(0xFFFFFFFFu, cost);
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
      const int bound = line.bound(part + i);
      if (bound < before_row || bound >= before) continue;
      const int first = before_row + warp_sum_scan(cost, batch.lane()) - cost;
      const unsigned hit = __ballot_sync(0xFFFFFFFFu, cost > 0 && first <= bound && bound < first + cost);
      const int source = __ffs(static_cast<int>(hit)) - 1;
      const int tile = snap(bound - first, tiles, line, rule);
      *(i == 0 ? begin : end) = {base + source, __shfl_sync(0xFFFFFFFFu, tile, source),
                                 __shfl_sync(0xFFFFFFFFu, first, source)};
    }
  });
}

// How a request is cut: piece j belongs to part `first_part + j`.
struct Pieces {
  int first_part;
  int count;
};

__device__ inline Pieces find_pieces(const Line& line, int first, int tiles, const PartitionRule& rule) {
  if (line.even.divisor() > 0) return {first, num_pieces(tiles, line.even)};
  // Inner cuts are the bounds in [first + fixed + least, first + fixed + tiles - least].
  const int low = first + line.fixed + rule.least_tiles;
  const int high = first + line.fixed + tiles - rule.least_tiles;
  // bound(i) = floor(total * i / parts) >= low  <=>  i >= low * parts / total, rounded up; exact in doubles.
  const double parts = line.parts, total = line.total;
  const int lowest = static_cast<int>(ceil(low * parts / total));
  const int highest = static_cast<int>(floor(((high + 1) * parts - 1) / total));
  return {lowest - 1, high < low || highest < lowest ? 1 : highest - lowest + 2};
}

// Where the state of a piece is kept. Pieces follow one another; a part holds at most the end of one cut
// request and the beginning of another.
__device__ inline int slot_of(const Pieces& pieces, int piece) { return 2 * pieces.first_part + 1 + piece; }

}  // namespace latent::attention::cuda
