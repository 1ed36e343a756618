// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA decode on Hopper for few query rows: wgmma with tokens on the M side and rows on the N side,
// so that sixteen rows cost sixteen, not sixty-four.
//
//   S^T [64 tokens, rows] = K . Q^T          K: boxes as the copy engine wrote them
//   O^T [rank, rows]     += V^T . P^T        V: the same boxes, read transposed
//
// A warp feeds a ring of boxes with bulk tensor copies and runs ahead over requests; two warpgroups take
// tiles in turn, each with an output of its own, and join them when the stretch of a request ends:
//
//   copy warp  |tile 0|tile 1|tile 2|tile 3| next request's ...
//   group 0           |S0 soft O0|         |S2 soft O2|        | join, write half
//   group 1                  |S1 soft O1|         |S3 soft O3| | join, write half
//
// Keys past a request's length take no part: their scores are masked, and their values are zeroed in shared
// memory before the product, since 0 x NaN is NaN (contract C2). Caches of e4m3 codes are read by
// narrow_codes.cuh, which puts the columns of a box in another order.
#pragma once

#include "attention/backends/cuda_common/decode_params.h"
#include "attention/backends/cuda_common/empty_rows.cuh"
#include "attention/backends/cuda_common/fast_divisor.cuh"
#include "attention/backends/cuda_common/numbers.cuh"
#include "attention/backends/cuda_common/partition.cuh"
#include "attention/backends/cuda_sm90/narrow_config.cuh"
#include "attention/backends/cuda_sm90/ring.cuh"
#include "prim/ptx_sm90.cuh"

namespace latent::attention::cuda {

// The stretch of a part, request by request.
struct Stretch {
  Line line;
  Cut begin, end;
};

template <class T, class Config>
class NarrowCta {
 public:
  using Small = typename Config::Small;
  using Product = typename Config::Product;
  using Cursor = RingCursor<Config::kSlots>;

  __device__ NarrowCta(const DecodeParams& params, const PartitionRule& rule, const CUtensorMap* map,
                       unsigned char* memory)
      : p_(params),
        rule_(rule),
        map_(map),
        query_(memory),
        weights_(query_ + Config::kQueryBytes),
        boxes_(weights_ + Config::kGroups * Config::kWeightBytes),
        small_(*reinterpret_cast<Small*>(boxes_ + Config::kSlots * Config::kSlotBytes)),
        part_(static_cast<int>(blockIdx.x) / params.num_row_tiles),
        row_tile_(static_cast<int>(blockIdx.x) % params.num_row_tiles),
        heads_(params.num_heads),
        warp_(__shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x / 32), 0)),
        lane_(threadIdx.x % 32) {}

  __device__ void run() {
    if (warp_ == Config::kConsumers / 32) set_up_barriers();
    if (warp_ == Config::kConsumers / 32 + 1) prefetch_lengths();
    ptx::allow_next_grid();
    __syncthreads();  // the barriers are set up
    ptx::wait_for_previous_grid();
    if (lane_ * 32 <= p_.num_seqs) {  // all at the same time
      ptx::prefetch_l1(p_.q_starts + lane_ * 32);
      if (lane_ * 32 < p_.num_seqs) ptx::prefetch_l1(p_.kv_lens + lane_ * 32);
    }
    const Stretch s = find_stretch();
    const bool idle = s.begin.seq >= p_.num_seqs;
    if (warp_ >= Config::kConsumers / 32) {
      ptx::give_up_registers<Config::kFeederRegisters>();
      if (warp_ > Config::kConsumers / 32) {  // the feeder's companions
        const int companion = threadIdx.x - Config::kConsumers - 32;
        if (!idle) walk(s, [&](int, int, int) { prefetch_query(companion, 96); });
        write_empty_rows<T>(p_, Config::kRank, companion, 96);
      } else if (!idle) {
        walk(s, [&](int first, int last, int) { feed(first, last); });
      }
    } else {
      ptx::take_registers<Config::kConsumerRegisters>();
      if (!idle) walk(s, [&](int first, int last, int tiles) { serve(s, first, last, tiles); });
    }
  }

 private:
  // By one warp.
  __device__ void set_up_barriers() {
    if (lane_ < Config::kSlots) {
      ptx::mbarrier_init(&small_.full[lane_], 1);
      ptx::mbarrier_init(&small_.empty[lane_], Config::kGroupThreads / 32);
    }
    if (lane_ == 0) ptx::prefetch_tensor_map(map_);
    __syncwarp();
    ptx::fence_mbarrier_init();
  }

  // Of this part; empty if there is nothing for it.
  __device__ Stretch find_stretch() const {
    BatchTiles batch(p_.kv_lens, p_.num_seqs, rule_);
    Stretch s;
    s.line = measure_line(batch, p_.num_parts, rule_);
    s.begin = s.end = {p_.num_seqs, 0, 0};
    if (part_ < s.line.parts) cuda::find_stretch(batch, s.line, part_, rule_, &s.begin, &s.end);
    if (lane_ == 0 && s.begin.seq < p_.num_seqs)
      ptx::prefetch_l1(p_.block_table + s.begin.seq * p_.table_stride +
                       s.begin.tile * Config::kTokens / p_.page_tokens);
    return s;
  }

  // What the grid before may still be writing is only brought into L2, where that does no harm. By one warp.
  __device__ void prefetch_lengths() {
#pragma unroll 1
    for (int seq = lane_ * 32; seq <= p_.num_seqs; seq += 1024) {
      if (seq < p_.num_seqs) ptx::prefetch_l2(p_.kv_lens + seq);
      ptx::prefetch_l2(p_.q_starts + seq);
    }
  }

  // Calls work(first tile, end tile, tiles of the request) for every request of the stretch that has rows
  // here.
  template <class Work>
  __device__ void walk(const Stretch& s, const Work& work) {
    for (int seq = s.begin.seq; seq < p_.num_seqs && seq <= s.end.seq; ++seq) {
      const int tiles = num_tiles(p_.kv_lens[seq], rule_);
      const int first = seq == s.begin.seq ? s.begin.tile : 0;
      const int last = seq == s.end.seq ? s.end.tile : tiles;
      if (first >= last) continue;
      seq_ = seq;
      kv_len_ = p_.kv_lens[seq];
      q_start_ = p_.q_starts[seq];
      q_len_ = p_.q_starts[seq + 1] - q_start_;
      num_rows_ = q_len_ * p_.num_heads;
      if (num_rows_ > row_tile_ * Config::kRows) work(first, last, tiles);
    }
  }

  // The copy warp.
  __device__ void feed(int first, int last);
  __device__ void feed_tile(int tile, int pages, int32_t id);

  // The warpgroups.
  __device__ int row(int local) const { return row_tile_ * Config::kRows + local; }
  // Row in the tile of this thread's column c of the scores.
  __device__ int local_row(int c) const { return c / 2 * 8 + lane_ % 4 * 2 + c % 2; }
  __device__ int num_keys(int local) const {
    return row(local) < num_rows_ ? kv_len_ - q_len_ + heads_.divide(row(local)) + 1 : 0;
  }
  __device__ int group() const { return warp_ / 4; }
  __device__ void group_sync() { ptx::named_barrier_sync<Config::kGroupThreads>(1 + group()); }
  __device__ void consumer_sync() {
    __syncwarp();
    ptx::named_barrier_sync<Config::kConsumers>(3);
  }
  __device__ unsigned char* box(int slot) { return boxes_ + slot * Config::kSlotBytes; }

  __device__ void serve(const Stretch& s, int first, int last, int tiles) {
    attend(first, last);
    const bool whole = first == 0 && last == tiles;
    finish(whole ? Pieces{part_, 1}
                 : find_pieces(s.line, seq_ == s.begin.seq ? s.begin.first : s.end.first, tiles, rule_),
           s.line.even.divisor() > 0);
  }
  struct QueryRow {
    const T* nope;
    const T* pe;
  };
  __device__ QueryRow query_row(int local) const;
  __device__ void load_query();
  __device__ void prefetch_query(int thread, int num_threads) const;
  __device__ void attend(int first, int last);
  __device__ void score(float (&s)[Config::kScores], Cursor cursor);
  __device__ void soften(float (&s)[Config::kScores], int tile, const unsigned char* keys);
  __device__ void store_weights(const float (&s)[Config::kScores], unsigned char* weights);
  __device__ void zero_tail(int live, Cursor cursor);
  __device__ void add_values(Cursor cursor);
  __device__ void release(Cursor cursor, int boxes);

  // The same for a cache of codes.
  __device__ void feed_tile_codes(int tile, int pages, int32_t id);
  __device__ void load_query_codes();
  __device__ void load_keys(uint32_t (&codes)[4], const unsigned char* keys, int column) const;
  __device__ void load_values(uint32_t (&codes)[4], const unsigned char* keys, int box, int token) const;
  __device__ void multiply_rope(float (&d)[Config::kScores], const unsigned char* keys, bool accumulate);
  __device__ void score_codes(float (&s)[Config::kScores], const unsigned char* keys);
  __device__ void widen_units(const unsigned char* keys);
  __device__ void store_scaled_weights(const float (&s)[Config::kScores], const unsigned char* keys);
  __device__ void add_value_codes(const unsigned char* keys);
  __device__ void attend_codes(int first, int last);
  __device__ float4 scales_of(const unsigned char* keys, int token) const {
    return *reinterpret_cast<const float4*>(keys + token * Config::CodeRow::kStride + Config::kRank);
  }

  // The end of a stretch of a request: see narrow_merge.cuh.
  __device__ void finish(const Pieces& pieces, bool even);
  __device__ void leave_sums();
  __device__ float2 weigh_groups(int local);
  template <int kFirst>
  __device__ void join_groups();
  template <int kFirst>
  __device__ void pass_boxes();
  template <int kFirst>
  __device__ void take_boxes();
  template <int kMine>
  __device__ void write_output();
  template <int kMine>
  __device__ void leave_piece(int64_t state);
  __device__ void weigh_pieces(const Pieces& pieces);
  __device__ void merge_share(const Pieces& pieces, int share, int shares);
  __device__ void add_teams(float4* x, int side);
  __device__ void write_four(int four, const float4& x, bool valid);
  __device__ void write_four_codes(int four, const float4& x, bool valid);
  __device__ void write_lse(int local, float lse);

  // Calls use<first box>() with the boxes of the output that are this group's in the end.
  template <class Use>
  __device__ void by_group(const Use& use) {
    if (group() == 0)
      use.template operator()<0>();
    else
      use.template operator()<Config::kHalf>();
  }
  // Where a group passes four elements of this thread's to the other.
  __device__ float4* passed(int of_group, int b, int j) {
    return reinterpret_cast<float4*>(query_) +
           ((of_group * Config::kBoxesAtOnce + b) * Config::kFours + j) * Config::kGroupThreads +
           threadIdx.x % Config::kGroupThreads;
  }
  __device__ int64_t state_of(const Pieces& pieces, int piece) const {
    return int64_t{slot_of(pieces, piece)} * p_.num_row_tiles + row_tile_;
  }
  // Outputs of a piece: [box][four of a thread][thread of the group].
  __device__ float4* partial_out(int64_t state) const {
    return reinterpret_cast<float4*>(p_.partial_out) + state * Config::kStateFours;
  }
  // States of the pieces of a request in a row: [row][slot], so that those of a row lie side by side.
  __device__ float2* partial_states(const Pieces& pieces, int local) const {
    const int slots = 2 * p_.num_parts, row = row_tile_ * Config::kRows + local;
    return reinterpret_cast<float2*>(p_.partial_lse) + int64_t{row} * slots + slot_of(pieces, 0);
  }

  const DecodeParams& p_;
  const PartitionRule& rule_;
  const CUtensorMap* map_;
  unsigned char* query_;    // [box][row] of 128 bytes; between requests what is merged
  unsigned char* weights_;  // [group][block of columns that shares a scale][row] of 128 bytes
  unsigned char* boxes_;
  Small& small_;
  const int part_, row_tile_;
  const FastDivisor heads_;
  const int warp_, lane_;
  int seq_ = 0, kv_len_ = 0, q_start_ = 0, q_len_ = 0, num_rows_ = 0;
  Cursor cursor_;

  // Output, not yet divided by the sums: [box][accumulator layout], M is the column in the box, N the row.
  float out_[Config::kValueBoxes][Config::kScores];
  // Base-2 domain. Sums of this thread's tokens alone: of the weights, and of the weights as rounded for the
  // product, by which the output is divided.
  float max_[Config::kColumns], sum_[Config::kColumns], rounded_[Config::kColumns];
  // Of codes in blocks: the units of their scales, and what the output is multiplied by as they grow.
  uint32_t unit_[Config::kScaleGroups];
  float unit_ratio_[Config::kScaleGroups];
};

}  // namespace latent::attention::cuda
