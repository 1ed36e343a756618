// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA decode for any NVIDIA GPU since Ampere: mma.sync for the products, cp.async for the keys.
//
// A CTA holds kRows query rows of one request and walks its stretch of key tiles (partition.cuh), 32 keys at
// a time:
//
//   load tile (stages ahead) | S = Q.K^T, each warp a block | softmax, a few threads a row | O = O * f + P.V,
//   each warp
//                            |                              |                              | a block of
//                            columns
//
// Keys past a request's length are not read; their rows in shared memory are zeros (contract C2). A request
// that was cut is merged by its pieces' CTAs in a binary tree, the second to arrive at a node doing the work
// (merge_pieces). Caches of e4m3 codes are read by decode_codes.cuh, which puts columns of a warp in another
// order.
#pragma once

#include <cmath>

#include "attention/backends/cuda_common/decode_params.h"
#include "attention/backends/cuda_common/empty_rows.cuh"
#include "attention/backends/cuda_common/numbers.cuh"
#include "attention/backends/cuda_common/partition.cuh"
#include "attention/backends/cuda_sm80/decode_config.cuh"
#include "prim/ptx_sm80.cuh"

namespace latent::attention::cuda {

template <class T, class Config>
class DecodeCta {
 public:
  using Shared = typename Config::Shared;
  using Product = typename Config::Product;

  __device__ DecodeCta(const DecodeParams& params, const PartitionRule& rule, int stages,
                       unsigned char* memory)
      : p_(params),
        rule_(rule),
        stages_(stages),
        shared_(*reinterpret_cast<Shared*>(memory)),
        keys_(memory + sizeof(Shared)),
        part_(static_cast<int>(blockIdx.x) / params.num_row_tiles),
        row_tile_(static_cast<int>(blockIdx.x) % params.num_row_tiles),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32) {}

  __device__ void run() {
    write_empty_rows<T>(p_, Config::kRank, threadIdx.x, Config::kThreads);
    BatchTiles batch(p_.kv_lens, p_.num_seqs, rule_);
    line_ = measure_line(batch, p_.num_parts, rule_);
    if (part_ >= line_.parts || line_.total == 0) return;
    Cut begin, end;
    find_stretch(batch, line_, part_, rule_, &begin, &end);
    for (int seq = begin.seq; seq < p_.num_seqs && seq <= end.seq; ++seq) {
      const int tiles = num_tiles(p_.kv_lens[seq], rule_);
      const int first = seq == begin.seq ? begin.tile : 0;
      const int last = seq == end.seq ? end.tile : tiles;
      if (first >= last) continue;
      open_request(seq);
      if (num_rows_ <= row_tile_ * Config::kRows) continue;
      attend(first, last);
      if (first == 0 && last == tiles)
        write_rows();
      else
        merge_pieces(find_pieces(line_, seq == begin.seq ? begin.first : end.first, tiles, rule_));
    }
  }

 private:
  static constexpr int kRowSharers = Config::kThreads / Config::kTokens;  // threads that copy one key

  // Rows of this CTA's tile, in the request's own numbering (query token * num_heads + head).
  __device__ int row(int local) const { return row_tile_ * Config::kRows + local; }

  __device__ void open_request(int seq) {
    seq_ = seq;
    kv_len_ = p_.kv_lens[seq];
    q_start_ = p_.q_starts[seq];
    q_len_ = p_.q_starts[seq + 1] - q_start_;
    num_rows_ = q_len_ * p_.num_heads;
  }

  // Keys that a row sees: those up to its own position.
  __device__ int num_keys(int local) const {
    return row(local) < num_rows_ ? kv_len_ - q_len_ + row(local) / p_.num_heads + 1 : 0;
  }

  __device__ void load_query();
  // A key that this thread copies.
  struct KeyPlace {
    int key, page, in_page;
    int32_t id;  // of the page
  };
  __device__ KeyPlace place_of(int key) const {
    return {.key = key, .page = key / p_.page_tokens, .in_page = key % p_.page_tokens, .id = 0};
  }
  __device__ void advance(KeyPlace* place) const;
  __device__ void look_up(KeyPlace* place) const;
  __device__ void load_keys(const KeyPlace& place, int stage);
  // A warp's place in the grid of scores.
  __device__ int score_row_tile() const { return warp_ / Config::kColumnWarps % Config::kRowTiles; }
  __device__ int score_token() const { return warp_ % Config::kColumnWarps * Config::kScoreTiles * 8; }
  __device__ int key_part() const { return warp_ / (Config::kColumnWarps * Config::kRowTiles); }
  __device__ int first_step() const { return key_part() * Config::kPartSteps; }
  // Of this warp; one that is known when compiled to exist costs nothing to ask for.
  __device__ bool has_step(int i) const {
    constexpr int kSure = Config::kSteps - (Config::kKeyParts - 1) * Config::kPartSteps;
    return i < kSure || (i < Config::kPartSteps && first_step() + i < Config::kSteps);
  }
  __device__ const Product* query_of_lane() const {
    return shared_.query + (score_row_tile() * 16 + lane_ % 16) * Config::kKeyStride + lane_ / 16 * 8;
  }
  __device__ void take_query(int i);
  __device__ void leave_scores(const float (&s)[Config::kScoreTiles][4]);
  __device__ void score(const T* keys);
  __device__ void soften(int tile, const unsigned char* keys);
  __device__ void rescale_output();
  __device__ void take_values(int block, int load, const unsigned char* keys);
  __device__ void add_values(const unsigned char* keys);
  // The same for a cache of codes.
  __device__ void load_query_codes();
  __device__ void score_codes(const unsigned char* keys);
  __device__ void widen_units(const unsigned char* keys);
  __device__ void add_value_codes(const unsigned char* keys);
  __device__ int scale_group() const { return warp_ * Config::kValueTiles * 8 / 128; }
  // What the outputs of this warp's columns are multiplied by in the end.
  __device__ float output_unit() const;
  __device__ void attend(int first, int last);
  __device__ void merge_pieces(const Pieces& pieces);
  __device__ void store_partial(int slot);
  __device__ void load_and_merge(int slot, bool mine_is_left);
  __device__ void write_rows();
  __device__ void write_row(int local, int column, float a, float b);

  const DecodeParams& p_;
  const PartitionRule& rule_;
  const int stages_;
  Shared& shared_;
  unsigned char* keys_;
  const int part_, row_tile_, warp_, lane_;
  Line line_{};
  int seq_ = 0, kv_len_ = 0, q_start_ = 0, q_len_ = 0, num_rows_ = 0;

  // Of the query: this warp's rows and columns, of every step or of the latest.
  uint32_t query_[Config::kKeepsQuery ? Config::kPartSteps : 1][Config::kStepFragments][4];
  // Of the values: this warp's columns, of every block of 16 tokens, or the latest load.
  static constexpr int kTokenBlocks = Config::kTokens / 16;
  static constexpr bool kEarly = Config::kLoadsValuesEarly;
  uint32_t values_[kEarly ? kTokenBlocks : 1][kEarly ? Config::kValueLoads : 1][4];
  // Output of this warp's columns, unnormalised until attend() ends: [row tile][column tile][mma layout].
  float out_[Config::kRowTiles][Config::kValueTiles][4];
  // Softmax state of the row that this thread softens; sums of its own tokens until attend() ends.
  float max_ = 0, sum_ = 0, weight_sum_ = 0;
  // Of codes in blocks: the unit of each block's scales, a power of two, that of this warp's columns (an
  // index known at run time would move all of this to memory), and what their output is multiplied by as it
  // grows.
  uint32_t unit_[Config::kScaleGroups], own_unit_ = 0;
  float unit_rescale_ = 1;
};

}  // namespace latent::attention::cuda
