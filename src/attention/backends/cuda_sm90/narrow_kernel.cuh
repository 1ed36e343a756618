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

#include <cmath>

#include "attention/backends/cuda_common/decode_params.h"
#include "attention/backends/cuda_common/empty_rows.cuh"
#include "attention/backends/cuda_common/numbers.cuh"
#include "attention/backends/cuda_common/partition.cuh"
#include "attention/backends/cuda_sm90/narrow_config.cuh"
#include "prim/ptx_sm90.cuh"

namespace latent::attention::cuda {

// Position in the ring of boxes.
template <int kSlots>
struct RingCursor {
  int slot = 0;
  int phase = 0;
  __device__ void skip(int boxes) {
    slot += boxes;
    if (slot >= kSlots) {
      slot -= kSlots;
      phase ^= 1;
    }
  }
};

// Address of 16-byte chunk `chunk` of row `row` in an atom of 128-byte rows under the 128-byte swizzle.
__device__ inline int swizzled(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

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

// --- The copy warp ---

template <class T, class Config>
__device__ void NarrowCta<T, Config>::feed(int first, int last) {
  const int32_t* table = p_.block_table + seq_ * p_.table_stride;
  const int page = p_.page_tokens;
  const int end = share(first, last, rank_ + 1);
  for (int tile = share(first, last, rank_); tile < end; ++tile) {
    const int token = tile * Config::kTokens;
    const int live = min(kv_len_ - token, Config::kTokens);
    feed_tile(tile, page >= Config::kTokens ? 1 : (live + page - 1) / page, table + token / page);
  }
  if (cluster_ == 1) return;
  for (int b = 0; b < Config::kExchangeBoxes;
       ++b, cursor_.skip(1)) {  // lent to the warpgroups, see share_out
    ptx::mbarrier_wait(&small_.empty[cursor_.slot], cursor_.phase ^ 1);
    if (lane_ == 0) ptx::mbarrier_arrive(&small_.full[cursor_.slot]);
  }
}

// `pages` pages that hold keys of the tile, or the part of one that is the tile. Pages past the request's
// last one are neither looked up nor read.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::feed_tile(int tile, int pages, const int32_t* table) {
  const int box_tokens = min(p_.page_tokens, Config::kTokens);
  const int y = tile * Config::kTokens % p_.page_tokens;
  const int32_t id = lane_ < pages ? table[lane_] : 0;
  const uint64_t policy = ptx::evict_first_policy();
  for (int b = 0; b < Config::kBoxes; ++b) {
    uint64_t* full = &small_.full[cursor_.slot];
    ptx::mbarrier_wait(&small_.empty[cursor_.slot], cursor_.phase ^ 1);
    if (lane_ == 0) ptx::mbarrier_arrive_expect(full, pages * box_tokens * Config::kRowBytes);
    __syncwarp();
    if (lane_ < pages)
      ptx::tma_load_3d(box(cursor_.slot) + lane_ * box_tokens * Config::kRowBytes, map_,
                       b * Config::kBoxColumns, y, id, full, policy);
    cursor_.skip(1);
  }
}

// --- The warpgroups ---

template <class T, class Config>
__device__ void NarrowCta<T, Config>::load_query() {
  constexpr int kChunks = Config::kBoxes * 8;
  const T* nope = static_cast<const T*>(p_.q_nope);
  const T* pe = static_cast<const T*>(p_.q_pe);
  for (int i = threadIdx.x; i < Config::kRows * kChunks; i += Config::kConsumers) {
    const int local = i / kChunks, chunk = i % kChunks, column = chunk * 8;
    uint4 x = make_uint4(0, 0, 0, 0);
    if (row(local) < num_rows_ && column < Config::kRank + Config::kRope) {
      const int64_t token = q_start_ + row(local) / p_.num_heads, head = row(local) % p_.num_heads;
      const T* from =
          column < Config::kRank
              ? nope + token * p_.q_nope_token_stride + head * p_.q_nope_head_stride + column
              : pe + token * p_.q_pe_token_stride + head * p_.q_pe_head_stride + column - Config::kRank;
      x = __ldg(reinterpret_cast<const uint4*>(from));
    }
    *reinterpret_cast<uint4*>(query_ + chunk / 8 * Config::kQueryBoxBytes + swizzled(local, chunk % 8)) = x;
  }
  ptx::fence_async_shared();
}

// S^T of the tile at the cursor; waits for its boxes one by one.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::score(float (&s)[Config::kScores], Cursor cursor) {
  const uint64_t query = ptx::matrix_descriptor(query_);
#pragma unroll
  for (int b = 0; b < Config::kBoxes; ++b) {
    ptx::mbarrier_wait(&small_.full[cursor.slot], cursor.phase);
    const uint64_t keys = ptx::matrix_descriptor(box(cursor.slot));
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < Config::kBoxColumns; k += 16)
      ptx::wgmma_ss<T, 0>(s, ptx::advance(keys, k * 2),
                          ptx::advance(query, b * Config::kQueryBoxBytes + k * 2), b + k > 0);
    cursor.skip(1);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::pin(s);
}

// Scores become weights, in shared memory; running maxima, sums and the output follow.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::soften(float (&s)[Config::kScores], int tile) {
  const int token = warp_ % 4 * 16 + lane_ / 4;
  const int first_token = tile * Config::kTokens;
  if (first_token + Config::kTokens >
      kv_len_ - q_len_ + 1) {  // rows past the last are masked here alone: nobody reads them
#pragma unroll
    for (int c = 0; c < Config::kColumns; ++c) {
      const int keys = num_keys(local_row(c)) - first_token;
      if (token >= keys) s[c / 2 * 4 + c % 2] = -INFINITY;
      if (token + 8 >= keys) s[c / 2 * 4 + c % 2 + 2] = -INFINITY;
    }
  }
  float4* warp_max = small_.warp_max[group()];
#pragma unroll
  for (int c = 0; c < Config::kColumns; ++c) {
    float m = fmaxf(s[c / 2 * 4 + c % 2], s[c / 2 * 4 + c % 2 + 2]);
    m = fmaxf(m, __shfl_xor_sync(0xFFFFFFFFu, m, 4));
    m = fmaxf(m, __shfl_xor_sync(0xFFFFFFFFu, m, 8));
    m = fmaxf(m, __shfl_xor_sync(0xFFFFFFFFu, m, 16));
    if (lane_ < 4) reinterpret_cast<float*>(&warp_max[local_row(c)])[warp_ % 4] = m;
  }
  group_sync();  // maxima: every warp's to every warp
  const float scale = p_.softmax_scale * kLog2E;
  float rescale[Config::kColumns];
  bool moved = false;
#pragma unroll
  for (int c = 0; c < Config::kColumns; ++c) {
    const float4 w = warp_max[local_row(c)];
    const float largest = fmaxf(max_[c], fmaxf(fmaxf(w.x, w.y), fmaxf(w.z, w.w)) * scale);
    const float base = largest == -INFINITY ? 0.0f : largest;  // a row without keys so far
    rescale[c] = ptx::exp2_approx(max_[c] - base);
    moved |= largest != max_[c];
    max_[c] = largest;
    float& low = s[c / 2 * 4 + c % 2];
    float& high = s[c / 2 * 4 + c % 2 + 2];
    low = ptx::exp2_approx(fmaf(low, scale, -base));
    high = ptx::exp2_approx(fmaf(high, scale, -base));
    sum_[c] = fmaf(sum_[c], rescale[c], low + high);
  }
  unsigned char* weights = weights_ + group() * Config::kQueryBoxBytes;
#pragma unroll
  for (int j = 0; j < Config::kRows / 8; j += 2) {
    uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = (j + i / 2) * 4 + i % 2 * 2;
      packed[i] = pack<T>(s[at], s[at + 1]);
    }
    const int to_row = (j + lane_ / 16) * 8 + lane_ % 8, chunk = warp_ % 4 * 2 + lane_ / 8 % 2;
    ptx::stmatrix_x4_trans(weights + swizzled(to_row, chunk), packed);
  }
  if (__any_sync(0xFFFFFFFFu, moved)) {
#pragma unroll
    for (int b = 0; b < Config::kValueBoxes; ++b)
#pragma unroll
      for (int i = 0; i < Config::kScores; ++i) out_[b][i] *= rescale[i / 4 * 2 + i % 2];
  }
}

// Rows of the tile's value boxes from `live` on become zero.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::zero_tail(int live, Cursor cursor) {
  const int thread = threadIdx.x % Config::kGroupThreads;
  for (int b = 0; b < Config::kValueBoxes; ++b) {
    for (int i = live * 8 + thread; i < Config::kTokens * 8; i += Config::kGroupThreads)
      *reinterpret_cast<uint4*>(box(cursor.slot) + i * 16) = make_uint4(0, 0, 0, 0);
    cursor.skip(1);
  }
}

template <class T, class Config>
__device__ void NarrowCta<T, Config>::add_values(Cursor cursor) {
  const uint64_t weights = ptx::matrix_descriptor(weights_ + group() * Config::kQueryBoxBytes);
  ptx::wgmma_fence();
#pragma unroll
  for (int b = 0; b < Config::kValueBoxes; ++b) {
    const uint64_t values = ptx::matrix_descriptor(box(cursor.slot));
#pragma unroll
    for (int k = 0; k < Config::kTokens; k += 16)
      ptx::wgmma_ss<T, 1>(out_[b], ptx::advance(values, k * Config::kRowBytes), ptx::advance(weights, k * 2),
                          true);
    cursor.skip(1);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int b = 0; b < Config::kValueBoxes; ++b) ptx::pin(out_[b]);
}

// This warp is done with the boxes from the cursor on: lane b says so for box b.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::release(Cursor cursor, int boxes) {
  __syncwarp();
  if (lane_ >= boxes) return;
  cursor.skip(lane_);
  ptx::mbarrier_arrive(&small_.empty[cursor.slot]);
}

// Leaves the normalised output of the stretch in out_ (of the group's own boxes) and its LSE in small_.lse.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::attend(int first, int last) {
  load_query();
#pragma unroll
  for (int b = 0; b < Config::kValueBoxes; ++b)
#pragma unroll
    for (int i = 0; i < Config::kScores; ++i) out_[b][i] = 0;
#pragma unroll
  for (int c = 0; c < Config::kColumns; ++c) {
    max_[c] = -INFINITY;
    sum_[c] = 0;
  }
  consumer_sync();  // the query: all to all
  for (int tile = first; tile < last; ++tile, cursor_.skip(Config::kBoxes)) {
    if ((tile - first) % Config::kGroups != group()) continue;
    float s[Config::kScores];
    score(s, cursor_);
    soften(s, tile);
    const int live = kv_len_ - tile * Config::kTokens;
    if (live < Config::kTokens) zero_tail(live, cursor_);
    ptx::fence_async_shared();
    group_sync();  // weights and zeros: all to the tensor cores
    add_values(cursor_);
    release(cursor_, Config::kBoxes);
  }
  join_groups();
}

// Boxes kFirst .. kFirst + kOwnBoxes - 1 from one group to the other, which adds them to its own.
template <class T, class Config>
template <bool kWriter, int kFirst>
__device__ void NarrowCta<T, Config>::pass_boxes() {
  const int thread = threadIdx.x % Config::kGroupThreads;
  float4* scratch = reinterpret_cast<float4*>(query_) + thread;
#pragma unroll
  for (int b = kFirst; b < kFirst + Config::kOwnBoxes; ++b)
#pragma unroll
    for (int i = 0; i < Config::kScores; i += 4) {
      float4* at = scratch + ((b - kFirst) * (Config::kScores / 4) + i / 4) * Config::kGroupThreads;
      if constexpr (kWriter) {
        *at = make_float4(out_[b][i], out_[b][i + 1], out_[b][i + 2], out_[b][i + 3]);
      } else {
        const float4 x = *at;
        out_[b][i] += x.x;
        out_[b][i + 1] += x.y;
        out_[b][i + 2] += x.z;
        out_[b][i + 3] += x.w;
      }
    }
}

template <class T, class Config>
__device__ void NarrowCta<T, Config>::join_groups() {
#pragma unroll
  for (int c = 0; c < Config::kColumns; ++c) {
    float sum = sum_[c];
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 4);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 8);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 16);
    if (lane_ < 4) {
      reinterpret_cast<float*>(&small_.warp_sum[group()][local_row(c)])[warp_ % 4] = sum;
      if (warp_ % 4 == 0) small_.group_max[group()][local_row(c)] = max_[c];
    }
  }
  consumer_sync();  // maxima and sums: all to all; both groups are done with the query
  float factor[Config::kColumns];
#pragma unroll
  for (int c = 0; c < Config::kColumns; ++c) {
    const int r = local_row(c);
    const float a = small_.group_max[0][r], b = small_.group_max[1][r];
    const float4 x = small_.warp_sum[0][r], y = small_.warp_sum[1][r];
    const float largest = fmaxf(a, b);
    const float base = largest == -INFINITY ? 0.0f : largest;
    const float sum = ((x.x + x.y) + (x.z + x.w)) * ptx::exp2_approx(a - base) +
                      ((y.x + y.y) + (y.z + y.w)) * ptx::exp2_approx(b - base);
    factor[c] = sum > 0 ? ptx::exp2_approx(max_[c] - base) / sum : 0.0f;
    if (warp_ == 0 && lane_ < 4) small_.lse[r] = sum > 0 ? base + log2f(sum) : -INFINITY;
  }
#pragma unroll
  for (int b = 0; b < Config::kValueBoxes; ++b)
#pragma unroll
    for (int i = 0; i < Config::kScores; ++i) out_[b][i] *= factor[i / 4 * 2 + i % 2];
  if (group() == 1) pass_boxes<true, 0>();
  consumer_sync();
  if (group() == 0) pass_boxes<false, 0>();
  consumer_sync();
  if (group() == 0) pass_boxes<true, Config::kOwnBoxes>();
  consumer_sync();
  if (group() == 1) {
    pass_boxes<false, Config::kOwnBoxes>();
    // From here on each group's boxes are its first ones.
#pragma unroll
    for (int b = 0; b < Config::kOwnBoxes; ++b)
#pragma unroll
      for (int i = 0; i < Config::kScores; ++i) out_[b][i] = out_[b + Config::kOwnBoxes][i];
  }
  consumer_sync();  // the query's memory is free
}

// Puts the output where the cluster sees it, in boxes that the feeder lends, and waits until all have done
// so.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::share_out() {
  Cursor cursor = cursor_;
  for (int b = 0; b < Config::kExchangeBoxes; ++b, cursor.skip(1))
    ptx::mbarrier_wait(&small_.full[cursor.slot], cursor.phase);
  constexpr int kOwnQuads = Config::kQuads / Config::kGroups;
#pragma unroll
  for (int b = 0; b < Config::kOwnBoxes; ++b)
#pragma unroll
    for (int i = 0; i < Config::kScores; i += 4) {
      const int quad = group() * kOwnQuads + (b * (Config::kScores / 4) + i / 4) * Config::kGroupThreads +
                       threadIdx.x % Config::kGroupThreads;
      *exchange_quad(cursor_.slot, quad) =
          make_float4(out_[b][i], out_[b][i + 1], out_[b][i + 2], out_[b][i + 3]);
    }
  if (threadIdx.x == 0) small_.exchange_slot = cursor_.slot;
  consumer_sync();  // outputs and LSEs: all to the arriving threads
  if (threadIdx.x < cluster_) ptx::mbarrier_arrive_peer(ptx::peer_address(&small_.shared_out, threadIdx.x));
  ptx::mbarrier_wait_cluster(&small_.shared_out, exchanges_ % 2);
  if (threadIdx.x < cluster_)
    small_.peer_slot[threadIdx.x] = ptx::load_peer_int(ptx::peer_address(&small_.exchange_slot, threadIdx.x));
}

// Gives the boxes back once every CTA has read what it needs.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::end_sharing() {
  consumer_sync();  // all have read
  if (threadIdx.x < cluster_) ptx::mbarrier_arrive_peer(ptx::peer_address(&small_.read_out, threadIdx.x));
  ptx::mbarrier_wait_cluster(&small_.read_out, exchanges_ % 2);
  ++exchanges_;
  ptx::fence_async_shared();
  if (group() == 0) release(cursor_, Config::kExchangeBoxes);
  cursor_.skip(Config::kExchangeBoxes);
}

template <class T, class Config>
__device__ void NarrowCta<T, Config>::store_own(float4* partial) {
  constexpr int kOwnQuads = Config::kQuads / Config::kGroups;
#pragma unroll
  for (int b = 0; b < Config::kOwnBoxes; ++b)
#pragma unroll
    for (int i = 0; i < Config::kScores; i += 4)
      __stcg(partial + group() * kOwnQuads + (b * (Config::kScores / 4) + i / 4) * Config::kGroupThreads +
                 threadIdx.x % Config::kGroupThreads,
             make_float4(out_[b][i], out_[b][i + 1], out_[b][i + 2], out_[b][i + 3]));
}

// Says that this piece's state is out. True for the CTA that comes last, which then sees all of them.
template <class T, class Config>
__device__ bool NarrowCta<T, Config>::arrive_last(const Pieces& pieces) {
  __threadfence();
  consumer_sync();  // every thread's part is out before the counter says so
  if (threadIdx.x == 0) {
    int32_t* counter = p_.arrived + state_of(pieces, 0) * cluster_ + rank_;
    const int before = atomicAdd(counter, 1);
    if (before == pieces.count - 1) *counter = 0;  // nobody looks at it again in this launch
    small_.flag = before == pieces.count - 1;
    __threadfence();
  }
  consumer_sync();  // the flag: the leader to all
  return small_.flag != 0;
}

// Weights of the states, row by row, and the LSE of their union. Total: empty with empty is empty.
template <class T, class Config>
template <class LoadLse>
__device__ void NarrowCta<T, Config>::weigh(int num_states, const LoadLse& load_lse) {
  float* weights = reinterpret_cast<float*>(query_);  // [state][row]
  for (int r = warp_; r < Config::kRows; r += Config::kConsumers / 32) {
    float largest = -INFINITY;
    for (int s = lane_; s < num_states; s += 32) {
      const float lse = load_lse(s, r);
      weights[s * Config::kRows + r] = lse;
      largest = fmaxf(largest, lse);
    }
    for (int d = 1; d < 32; d *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, d));
    const float base = largest == -INFINITY ? 0.0f : largest;
    float sum = 0;
    for (int s = lane_; s < num_states; s += 32) sum += exp2f(weights[s * Config::kRows + r] - base);
    for (int d = 1; d < 32; d *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
    const float factor = sum > 0 ? 1.0f / sum : 0.0f;
    for (int s = lane_; s < num_states; s += 32)
      weights[s * Config::kRows + r] = exp2f(weights[s * Config::kRows + r] - base) * factor;
    if (lane_ == 0) small_.merged_lse[r] = sum > 0 ? base + log2f(sum) : -INFINITY;
  }
  consumer_sync();  // weights: all to all
}

// Rows of a quad: these two, each at two columns.
template <class Config>
__device__ inline int quad_row(int quad) {
  return quad / Config::kGroupThreads % (Config::kRows / 8) * 8 + quad % 4 * 2;
}

template <class T, class Config>
template <class LoadQuad>
__device__ float4 NarrowCta<T, Config>::combine(int num_states, int quad, const LoadQuad& load_quad) const {
  const float* weights = reinterpret_cast<const float*>(query_) + quad_row<Config>(quad);
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
  for (int s = 0; s < num_states; ++s) {
    const float4 x = load_quad(s);
    const float2 w = *reinterpret_cast<const float2*>(weights + s * Config::kRows);
    sum.x = fmaf(x.x, w.x, sum.x);
    sum.y = fmaf(x.y, w.y, sum.y);
    sum.z = fmaf(x.z, w.x, sum.z);
    sum.w = fmaf(x.w, w.y, sum.w);
  }
  return sum;
}

// First the CTAs of the cluster, through their shared memory; then, if the request was cut, its pieces,
// through global memory, by the cluster that comes last (each CTA of it for its share). The order of the sums
// is that of the keys, whoever comes when.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::merge(const Pieces& pieces) {
  const int64_t mine = state_of(pieces, part_ - pieces.first_part);
  const auto partial = [&](int64_t state) {
    return reinterpret_cast<float4*>(p_.partial_out) + state * Config::kQuads;
  };
  const float* lse = small_.lse;
  if (cluster_ > 1) {
    share_out();
    weigh(cluster_, [&](int s, int r) { return ptx::load_peer_float(ptx::peer_address(&small_.lse[r], s)); });
    lse = small_.merged_lse;
    for_each_quad([&](int quad) {
      const float4 x = combine(cluster_, quad, [&](int s) {
        return ptx::load_peer_float4(ptx::peer_address(exchange_quad(small_.peer_slot[s], quad), s));
      });
      if (pieces.count == 1)
        write_quad(quad, x);
      else
        __stcg(partial(mine) + quad, x);
    });
    if (pieces.count > 1 && threadIdx.x < Config::kRows)
      __stcg(p_.partial_lse + mine * Config::kRows + threadIdx.x, lse[threadIdx.x]);
    if (pieces.count == 1) write_lse(lse);
    end_sharing();
    if (pieces.count == 1) return;
  } else {
    store_own(partial(mine));
    if (threadIdx.x < Config::kRows)
      __stcg(p_.partial_lse + mine * Config::kRows + threadIdx.x, lse[threadIdx.x]);
  }
  if (!arrive_last(pieces)) return;
  weigh(pieces.count,
        [&](int s, int r) { return __ldcg(p_.partial_lse + state_of(pieces, s) * Config::kRows + r); });
  for_each_quad([&](int quad) {
    write_quad(quad, combine(pieces.count, quad,
                             [&](int s) { return __ldcg(partial(state_of(pieces, s)) + quad); }));
  });
  write_lse(small_.merged_lse);
  consumer_sync();  // the query's memory is free
}

template <class T, class Config>
__device__ void NarrowCta<T, Config>::write_quad(int quad, const float4& x) {
  const int box = quad / (Config::kGroupThreads * (Config::kRows / 8)), thread = quad % Config::kGroupThreads;
  const int column = box * Config::kBoxColumns + thread / 32 * 16 + thread % 32 / 4;
  const float values[2][2] = {{x.x, x.z}, {x.y, x.w}};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int r = row(quad_row<Config>(quad) + i);
    if (r >= num_rows_) continue;
    T* to = static_cast<T*>(p_.out) + (q_start_ + r / p_.num_heads) * p_.out_token_stride +
            r % p_.num_heads * p_.out_head_stride + column;
    to[0] = from_float<T>(values[i][0]);
    to[8] = from_float<T>(values[i][1]);
  }
}

template <class T, class Config>
__device__ void NarrowCta<T, Config>::write_lse(const float* lse) {
  const int r = row(threadIdx.x);
  if (p_.lse == nullptr || rank_ != 0 || threadIdx.x >= Config::kRows || r >= num_rows_) return;
  p_.lse[(q_start_ + r / p_.num_heads) * p_.lse_token_stride + r % p_.num_heads * p_.lse_head_stride] =
      lse[threadIdx.x] * kLn2;
}

// Through shared memory, rows of the output one after the other, so that global memory sees whole lines.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::write_rows() {
  constexpr int kPitch = Config::kRank * 2 + 16;  // no two rows of a matrix in one bank
  static_assert(Config::kRows * kPitch <= (Config::kBoxes + Config::kGroups) * Config::kQueryBoxBytes);
#pragma unroll
  for (int b = 0; b < Config::kOwnBoxes; ++b)
#pragma unroll
    for (int j = 0; j < Config::kRows / 8; j += 2) {
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = (j + i / 2) * 4 + i % 2 * 2;
        packed[i] = pack<T>(out_[b][at], out_[b][at + 1]);
      }
      const int local = (j + lane_ / 16) * 8 + lane_ % 8;
      const int column =
          (group() * Config::kOwnBoxes + b) * Config::kBoxColumns + warp_ % 4 * 16 + lane_ / 8 % 2 * 8;
      ptx::stmatrix_x4_trans(query_ + local * kPitch + column * 2, packed);
    }
  consumer_sync();  // the rows: all to all
  constexpr int kChunks = Config::kRank / 8;
  for (int i = threadIdx.x; i < Config::kRows * kChunks; i += Config::kConsumers) {
    const int local = i / kChunks, chunk = i % kChunks;
    if (row(local) >= num_rows_) break;
    const int64_t token = q_start_ + row(local) / p_.num_heads, head = row(local) % p_.num_heads;
    *reinterpret_cast<uint4*>(static_cast<T*>(p_.out) + token * p_.out_token_stride +
                              head * p_.out_head_stride + chunk * 8) =
        *reinterpret_cast<const uint4*>(query_ + local * kPitch + chunk * 16);
  }
  write_lse(small_.lse);
  consumer_sync();  // the query's memory and the LSEs are free
}

template <class T, class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    narrow_kernel(const __grid_constant__ DecodeParams params, const __grid_constant__ PartitionRule rule,
                  const __grid_constant__ CUtensorMap map) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(16) unsigned char memory[];
  unsigned char* aligned = memory + (-ptx::shared_address(memory) & 1023);
  NarrowCta<T, Config>(params, rule, &map, aligned).run();
#endif
}

}  // namespace latent::attention::cuda
