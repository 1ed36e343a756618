// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA decode on Hopper for many query rows: 64 of them on the M side of every product.
//
//   S [64 rows, 64 tokens]  = Q . K^T     K: boxes as the copy engine wrote them
//   O [64 rows, rank]      += P . V       V: the same boxes, read transposed; each group holds half the
//   columns
//
// Two warpgroups take tiles in turn. The owner of a tile computes its scores and weights; both add its
// values, each to its half of the columns: the owner at once, with the weights still in registers, the other
// one in the middle of its own next scores, with the weights from shared memory:
//
//   group 0   | S0       | soft 0 | O0 left  |S2.. | O1 left  |..S2 | soft 2 | O2 left  |
//   group 1        | S1 .. | O0 right |..S1 | soft 1 | O1 right |S3.. | O2 right |..S3 | soft 3 |
//
// So the tensor cores have one group's products to do while the other's softmax lasts, and boxes are let go
// early, half a tile at a time, which matters: two tiles and the query fill shared memory. A tile's boxes
// come in the order in which they are scored and let go: rope, the owner's half, the other half.
//
// Running maxima are handed on from tile to tile. They follow a row's true maximum only when it has grown by
// more than 2^kMaxSlack, so that outputs are seldom rescaled.
//
// Keys past a request's length take no part: their scores are masked, and their values are zeroed in shared
// memory before the product, since 0 x NaN is NaN (contract C2).
#pragma once

#include "attention/backends/cuda_common/decode_params.h"
#include "attention/backends/cuda_common/empty_rows.cuh"
#include "attention/backends/cuda_common/numbers.cuh"
#include "attention/backends/cuda_common/partition.cuh"
#include "attention/backends/cuda_sm90/ring.cuh"
#include "attention/backends/cuda_sm90/wide_config.cuh"
#include "prim/wgmma_sm90.cuh"

namespace latent::attention::cuda {

template <class T, class Config>
class WideCta {
 public:
  using Small = typename Config::Small;

  __device__ WideCta(const DecodeParams& params, const PartitionRule& rule, const CUtensorMap* map,
                     unsigned char* memory)
      : p_(params),
        rule_(rule),
        map_(map),
        query_(memory),
        weights_(query_ + Config::kBoxes * Config::kBoxBytes),
        boxes_(weights_ + Config::kBoxBytes),
        small_(*reinterpret_cast<Small*>(boxes_ + Config::kSlots * Config::kBoxBytes)),
        part_(static_cast<int>(blockIdx.x) / params.num_row_tiles),
        row_tile_(static_cast<int>(blockIdx.x) % params.num_row_tiles),
        warp_(__shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x / 32), 0)),
        lane_(threadIdx.x % 32) {}

  __device__ void run() {
    if (threadIdx.x == 0) set_up_barriers();
    ptx::allow_next_grid();
    ptx::wait_for_previous_grid();
    if (warp_ == 0) find_own_stretch();
    __syncthreads();  // barriers and stretch: their maker to all
    const bool idle = small_.begin.seq >= p_.num_seqs;
    constexpr int kFeeder = Config::kConsumers / 32;
    if (warp_ < kFeeder) {
      ptx::take_registers<Config::kConsumerRegisters>();
      if (!idle) serve();
    } else {
      ptx::give_up_registers<Config::kFeederRegisters>();
      if (warp_ == kFeeder) {
        if (!idle) walk([&](int first, int last, int) { feed(first, last); });
      } else {
        if (!idle) walk([&](int, int, int) { load_query(); });
        write_empty_rows<T>(p_, Config::kRank, threadIdx.x - Config::kConsumers - 32, Config::kQueryThreads);
      }
    }
  }

 private:
  __device__ void set_up_barriers() {
    ptx::prefetch_tensor_map(map_);
    for (int i = 0; i < Config::kSlots; ++i) {
      ptx::mbarrier_init(&small_.full[i], 1);
      ptx::mbarrier_init(&small_.empty[i], Config::kGroupThreads / 32);  // a box is let go by one group
    }
    ptx::mbarrier_init(&small_.query_full, Config::kQueryThreads);
    ptx::mbarrier_init(&small_.query_empty, Config::kConsumers / 32);
    ptx::fence_mbarrier_init();
  }

  // Called by one warp. In shared memory, since registers are short.
  __device__ void find_own_stretch() {
    BatchTiles batch(p_.kv_lens, p_.num_seqs, rule_);
    const Line line = measure_line(batch, p_.num_parts, rule_);
    Cut begin{p_.num_seqs, 0, 0}, end = begin;
    if (part_ < line.parts) find_stretch(batch, line, part_, rule_, &begin, &end);
    if (lane_ > 0) return;
    small_.fixed = line.fixed;
    small_.total = line.total;
    small_.parts = line.parts;
    small_.even = line.even.divisor();
    small_.begin = begin;
    small_.end = end;
  }

  // Calls work(first tile, end tile, tiles of the request) for every request of the stretch that has rows
  // here.
  template <class Work>
  __device__ void walk(const Work& work) {
    for (int seq = small_.begin.seq; seq < p_.num_seqs && seq <= small_.end.seq; ++seq) {
      const int tiles = num_tiles(p_.kv_lens[seq], rule_);
      const int first = seq == small_.begin.seq ? small_.begin.tile : 0;
      const int last = seq == small_.end.seq ? small_.end.tile : tiles;
      if (first >= last) continue;
      visit(seq);
      if (num_rows_ <= row_tile_ * Config::kRows) continue;
      work(first, last, tiles);
      ++requests_;
    }
  }
  __device__ void visit(int seq) {
    seq_ = seq;
    kv_len_ = p_.kv_lens[seq];
    q_start_ = p_.q_starts[seq];
    q_len_ = p_.q_starts[seq + 1] - q_start_;
    num_rows_ = q_len_ * p_.num_heads;
  }

  // Tile i of this request's stretch: where its boxes are, and which time round.
  __device__ int slot(int i) const { return (tiles_before_ + i) % Config::kStages * Config::kBoxes; }
  __device__ int phase(int i) const { return (tiles_before_ + i) / Config::kStages % 2; }
  __device__ unsigned char* box(int slot) { return boxes_ + slot * Config::kBoxBytes; }
  // First of the boxes with group `half`'s columns of tile i.
  __device__ int half_slot(int i, int half) const {
    return slot(i) + Config::kRopeBoxes + (i % 2 == half ? 0 : Config::kHalfBoxes);
  }

  // The feeder and its companions.
  __device__ void feed(int first, int last);
  __device__ void feed_box(int slot, int phase, int column, int y, int pages, int32_t id);
  __device__ void load_query();
  __device__ void load_query_rope(int first, int end, int live, int64_t at);

  // The warpgroups.
  // A tile's softmax, of this thread's elements.
  struct Weights {
    uint32_t
        packed[Config::kScores / 2];  // [2j + h]: columns 8j + 2 * (lane % 4) and the next, of local_row(h)
    float factor[2];                  // what the output of the tiles before is to be multiplied by
  };
  __device__ int group() const { return warp_ / 4; }
  __device__ int row(int local) const { return row_tile_ * Config::kRows + local; }
  // Row in the tile of this thread's accumulators 4j + 2h + e.
  __device__ int local_row(int h) const { return warp_ % 4 * 16 + lane_ / 4 + 8 * h; }
  __device__ int num_keys(int local) const {
    return row(local) < num_rows_ ? kv_len_ - q_len_ + row(local) / p_.num_heads + 1 : 0;
  }
  __device__ void group_sync() { ptx::named_barrier_sync<Config::kGroupThreads>(4 + group()); }
  __device__ void consumer_sync() { ptx::named_barrier_sync<Config::kConsumers>(3); }

  __device__ void serve();
  __device__ void attend(int first, int last);
  __device__ void finish_scores(float (&s)[Config::kScores], int i, int first, int count, Weights& w);
  template <int kFirst, int kEnd>
  __device__ void score(float (&s)[Config::kScores], int i);
  template <int kPending>
  __device__ void finish_values(int i);
  __device__ void soften(float (&s)[Config::kScores], int tile, Weights& w);
  __device__ void mask(float (&s)[Config::kScores], int tile) const;
  __device__ void zero_tail(int i, int live);
  __device__ void publish(const Weights& w);
  __device__ void rescale(const float (&factor)[2]);
  __device__ void add_own_values(const Weights& w, int i);
  __device__ void add_other_values(int i);
  __device__ uint64_t values(int i) {
    return ptx::matrix_descriptor(box(half_slot(i, group())), 1024, Config::kBoxBytes);
  }
  __device__ void release(int slot, int boxes);
  __device__ void let_go_of_query();
  __device__ void normalise();

  // Rows out, and pieces of requests: see wide_merge.cuh.
  struct PieceState {
    float rounded;  // LSE by the weights as they met the values, base 2
    float exact;
  };
  __device__ T* out_row(int local) const;
  __device__ void write_rows();
  __device__ void write_lse(int local, float lse);
  __device__ Pieces pieces_of_request(int tiles) const;
  __device__ void finish_piece(const Pieces& pieces);
  __device__ void leave_piece(int64_t state);
  __device__ void merge_share(const Pieces& pieces, int share, int shares);
  __device__ void weigh_rows(const Pieces& pieces);
  __device__ void weigh_pieces(const Pieces& pieces, int first);
  template <int kPlaces, int kRun>
  __device__ void combine(const Pieces& pieces, int first_quad, int quads);
  __device__ int64_t state_of(const Pieces& pieces, int piece) const {
    return int64_t{slot_of(pieces, piece)} * p_.num_row_tiles + row_tile_;
  }
  __device__ float2* partial_state(int64_t state) const {
    return reinterpret_cast<float2*>(p_.partial_lse) + state * Config::kRows;
  }

  const DecodeParams& p_;
  const PartitionRule& rule_;
  const CUtensorMap* map_;
  unsigned char* query_;    // [box][row] of 128 bytes
  unsigned char* weights_;  // [row] of 128 bytes: the latest tile's, for the group that does not own it
  unsigned char* boxes_;
  Small& small_;
  const int part_, row_tile_, warp_, lane_;
  int seq_ = 0, kv_len_ = 0, q_start_ = 0, q_len_ = 0, num_rows_ = 0;
  int requests_ = 0;      // walked so far
  int tiles_before_ = 0;  // of the requests walked so far

  // [block of 8 columns of the group's half][accumulator layout]; unnormalised until normalise().
  float out_[Config::kOutputs];
  PieceState state_[2];               // after normalise()
  float max_[2], sum_[2], exact_[2];  // base-2 domain; sums are of this thread's tokens alone
};

}  // namespace latent::attention::cuda
