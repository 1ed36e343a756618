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
//   group 0           |S0 soft O0|         |S2 soft O2|        | join, write
//   group 1                  |S1 soft O1|         |S3 soft O3| | join, write
//
// Keys past a request's length take no part: their scores are masked, and their values are zeroed in shared
// memory before the product, since 0 x NaN is NaN (contract C2).
#pragma once

#include "attention/backends/cuda_common/decode_params.h"
#include "attention/backends/cuda_common/empty_rows.cuh"
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
  using Cursor = RingCursor<Config::kSlots>;

  __device__ NarrowCta(const DecodeParams& params, const PartitionRule& rule, const CUtensorMap* map,
                       unsigned char* memory)
      : p_(params),
        rule_(rule),
        map_(map),
        query_(memory),
        weights_(query_ + Config::kBoxes * Config::kQueryBoxBytes),
        boxes_(weights_ + Config::kGroups * Config::kQueryBoxBytes),
        small_(*reinterpret_cast<Small*>(boxes_ + Config::kSlots * Config::kBoxBytes)),
        cluster_(ptx::cluster_size()),
        rank_(ptx::cluster_rank()),
        part_(static_cast<int>(blockIdx.x) / cluster_ / params.num_row_tiles),
        row_tile_(static_cast<int>(blockIdx.x) / cluster_ % params.num_row_tiles),
        warp_(__shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x / 32), 0)),
        lane_(threadIdx.x % 32) {}

  __device__ void run() {
    if (threadIdx.x == 0) set_up_barriers();
    ptx::allow_next_grid();
    ptx::wait_for_previous_grid();
    Stretch s;
    s.line = measure_line(p_.kv_lens, p_.num_seqs, p_.num_parts, rule_);
    const bool idle = part_ >= s.line.parts || s.line.total == 0;
    if (!idle) find_stretch(p_.kv_lens, p_.num_seqs, s.line, part_, rule_, &s.begin, &s.end);
    if (cluster_ > 1)
      ptx::cluster_sync();  // the barriers of all CTAs are set up
    else
      __syncthreads();
    if (warp_ >= Config::kConsumers / 32) {
      ptx::give_up_registers<Config::kFeederRegisters>();
      if (warp_ > Config::kConsumers / 32)  // the feeder's idle companions
        write_empty_rows<T>(p_, Config::kRank, threadIdx.x - Config::kConsumers - 32, 96);
      else if (!idle)
        walk(s, [&](int first, int last, int) { feed(first, last); });
    } else {
      ptx::take_registers<Config::kConsumerRegisters>();
      if (!idle) walk(s, [&](int first, int last, int tiles) { serve(s, first, last, tiles); });
    }
  }

 private:
  __device__ void set_up_barriers() {
    ptx::prefetch_tensor_map(map_);
    for (int i = 0; i < Config::kSlots; ++i) {
      ptx::mbarrier_init(&small_.full[i], 1);
      ptx::mbarrier_init(&small_.empty[i], Config::kGroupThreads / 32);
    }
    ptx::mbarrier_init(&small_.shared_out, cluster_);
    ptx::mbarrier_init(&small_.read_out, cluster_);
    ptx::fence_mbarrier_init();
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
  __device__ void feed_tile(int tile, int pages, const int32_t* table);

  // The warpgroups.
  __device__ int row(int local) const { return row_tile_ * Config::kRows + local; }
  // Row in the tile of this thread's column c of the scores.
  __device__ int local_row(int c) const { return c / 2 * 8 + lane_ % 4 * 2 + c % 2; }
  __device__ int num_keys(int local) const {
    return row(local) < num_rows_ ? kv_len_ - q_len_ + row(local) / p_.num_heads + 1 : 0;
  }
  __device__ int group() const { return warp_ / 4; }
  __device__ void group_sync() { ptx::named_barrier_sync<Config::kGroupThreads>(1 + group()); }
  __device__ void consumer_sync() { ptx::named_barrier_sync<Config::kConsumers>(3); }
  __device__ unsigned char* box(int slot) { return boxes_ + slot * Config::kBoxBytes; }
  // Place of a quad in the boxes that begin at `slot`.
  __device__ float4* exchange_quad(int slot, int quad) {
    slot += quad / Config::kQuadsPerRing;
    if (slot >= Config::kSlots) slot -= Config::kSlots;
    return reinterpret_cast<float4*>(box(slot)) + quad % Config::kQuadsPerRing;
  }

  // The CTAs of a cluster share the tiles of a request evenly; some may get none.
  __device__ int share(int first, int last, int rank) const {
    return first + (last - first) * rank / cluster_;
  }
  __device__ void serve(const Stretch& s, int first, int last, int tiles) {
    attend(share(first, last, rank_), share(first, last, rank_ + 1));
    const bool whole = first == 0 && last == tiles;
    if (whole && cluster_ == 1) return write_rows();
    merge(whole ? Pieces{part_, 1}
                : find_pieces(s.line, seq_ == s.begin.seq ? s.begin.first : s.end.first, tiles, rule_));
  }
  __device__ void load_query();
  __device__ void attend(int first, int last);
  __device__ void score(float (&s)[Config::kScores], Cursor cursor);
  __device__ void soften(float (&s)[Config::kScores], int tile);
  __device__ void zero_tail(int live, Cursor cursor);
  __device__ void add_values(Cursor cursor);
  __device__ void release(Cursor cursor, int boxes);
  __device__ void join_groups();
  template <bool kWriter, int kFirst>
  __device__ void pass_boxes();

  // Merging: states are outputs and LSEs of the same rows. Each CTA of a cluster merges its share of the
  // quads.
  __device__ void merge(const Pieces& pieces);
  __device__ void share_out();
  __device__ void end_sharing();
  __device__ void store_own(float4* partial);
  __device__ bool arrive_last(const Pieces& pieces);
  template <class LoadLse>
  __device__ void weigh(int num_states, const LoadLse& load_lse);
  template <class LoadQuad>
  __device__ float4 combine(int num_states, int quad, const LoadQuad& load_quad) const;
  template <class Use>
  __device__ void for_each_quad(const Use& use) const {
    const int share = Config::kQuads / cluster_;
    for (int i = threadIdx.x; i < share; i += Config::kConsumers) use(rank_ * share + i);
  }
  __device__ int64_t state_of(const Pieces& pieces, int piece) const {
    return int64_t{slot_of(pieces, piece)} * p_.num_row_tiles + row_tile_;
  }
  __device__ void write_quad(int quad, const float4& x);
  __device__ void write_lse(const float* lse);
  __device__ void write_rows();

  const DecodeParams& p_;
  const PartitionRule& rule_;
  const CUtensorMap* map_;
  unsigned char* query_;    // [box][row] of 128 bytes; between requests scratch
  unsigned char* weights_;  // [group][row] of 128 bytes
  unsigned char* boxes_;
  Small& small_;
  const int cluster_, rank_;  // CTAs that share a part, and which of them this is
  const int part_, row_tile_, warp_, lane_;
  int seq_ = 0, kv_len_ = 0, q_start_ = 0, q_len_ = 0, num_rows_ = 0;
  Cursor cursor_;
  int exchanges_ = 0;  // requests merged in the cluster so far

  // Output, unnormalised until join_groups: [box][accumulator layout], M is the column in the box, N the row.
  float out_[Config::kValueBoxes][Config::kScores];
  float max_[Config::kColumns], sum_[Config::kColumns];  // base-2 domain; sums of this thread's tokens alone
};

}  // namespace latent::attention::cuda
