// SPDX-License-Identifier: Apache-2.0
// Multi-head attention on Hopper for prompts: wgmma with query rows on the M side.
//
//   S [64 rows, keys]  = Q . K^T     Q and K as the copy engine wrote them
//   O [64 rows, value] += P . V      P: the scores' own registers, rounded; V read transposed
//
// A warp feeds tiles of keys and values; two warpgroups work on 64 rows each of the same item. They take
// turns at starting products, so that one's softmax runs under the other's products, and within a group the
// scores of the next tile and the values of this one are under way together:
//
//   tensor cores | S0 O | S1 O | S0 O | S1 O | …
//   group 0              | softmax .. |        | softmax ..
//   group 1      ..       |        | softmax .. |
//
// Rows past a request's end, of queries, keys and values, never arrive: the copy engine puts zeros in their
// place (prefill_maps.h), so whatever memory holds there cannot matter (contract C2).
#pragma once

#include <cmath>

#include "attention/backends/cuda_common/numbers.cuh"
#include "attention/backends/cuda_common/prefill_rows.cuh"
#include "attention/backends/cuda_sm90/prefill_config.cuh"
#include "attention/backends/cuda_sm90/prefill_maps.h"
#include "attention/backends/cuda_sm90/ring.cuh"
#include "prim/wgmma_sm90.cuh"

namespace latent::attention::cuda {

template <class T, class Config>
class PrefillCta {
 public:
  using Small = typename Config::Small;
  using Cursor = RingCursor<Config::kStages>;

  __device__ PrefillCta(const PrefillParams& params, const PrefillMaps& maps, unsigned char* memory)
      : p_(params),
        maps_(maps),
        query_(memory),
        keys_(query_ + Config::kGroups * Config::kQueryBytes),
        values_(keys_ + Config::kStages * Config::kKeyBytes),
        small_(*reinterpret_cast<Small*>(values_ + Config::kStages * Config::kValueBytes)),
        warp_(__shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x / 32), 0)),
        lane_(threadIdx.x % 32) {}

  __device__ void run() {
    if (threadIdx.x == 0) set_up_barriers();
    __syncthreads();
    if (warp_ >= Config::kConsumers / 32) {
      ptx::give_up_registers<Config::kFeederRegisters>();
      if (warp_ == Config::kConsumers / 32)
        feed();
      else  // the feeder's idle companions
        write_padded_rows(p_, Config::kValue, threadIdx.x - Config::kConsumers - 32, 96);
    } else {
      ptx::take_registers<Config::kConsumerRegisters>();
      serve();
    }
  }

 private:
  __device__ void set_up_barriers() {
    const auto set_up = [](auto& full, auto& empty, int readers) {
      for (uint64_t& barrier : full) ptx::mbarrier_init(&barrier, 1);
      for (uint64_t& barrier : empty) ptx::mbarrier_init(&barrier, readers / 32);
    };
    set_up(small_.query_full, small_.query_empty, Config::kGroupThreads);
    set_up(small_.key_full, small_.key_empty, Config::kConsumers);
    set_up(small_.value_full, small_.value_empty, Config::kConsumers);
    set_up(small_.item_full, small_.item_empty, Config::kConsumers);
    ptx::fence_mbarrier_init();
  }

  __device__ static int num_tiles(const PrefillItem& item) {
    return item.last_keys <= 0 ? 0 : (item.last_keys + Config::kKeys - 1) / Config::kKeys;
  }

  // --- The feeder ---

  __device__ void feed() {
    PrefillItems<Config::kRows> items(p_, maps_.section_keys);
    int next = draw();
    for (RingCursor<Config::kItemSlots> slot;; slot.skip(1)) {
      const int drawn = __shfl_sync(0xFFFFFFFFu, next, 0);
      PrefillItem item{};
      const bool found = items.find(drawn, &item);
      if (lane_ == 0) {  // alone: a lane that waited late would find the phase after next
        ptx::mbarrier_wait(&small_.item_empty[slot.slot], slot.phase ^ 1);
        small_.item[slot.slot] = item;  // without rows: the end
        ptx::mbarrier_arrive(&small_.item_full[slot.slot]);
      }
      if (!found) {
        // Every CTA draws once past the end; the last to do so leaves the counter as it was found.
        if (lane_ == 0 && drawn == items.num_items() + static_cast<int>(gridDim.x) - 1) *p_.next_item = 0;
        return;
      }
      next = draw();                                      // answered while the tiles below are fed
      if (lane_ == 0) feed_item(small_.item[slot.slot]);  // from there: registers are few here
      __syncwarp();
    }
  }

  // Lane 0's is the answer.
  __device__ int draw() const { return lane_ == 0 ? atomicAdd(p_.next_item, 1) : 0; }

  // One lane.
  __device__ void feed_item(const PrefillItem& item) {
    const int tiles = num_tiles(item);
    if (tiles == 0) return;
    feed_keys(item, 0);
    feed_query(item);
    for (int tile = 1; tile < tiles; ++tile) {
      feed_keys(item, tile);
      feed_values(item, tile - 1);
    }
    feed_values(item, tiles - 1);
  }

  // kRows rows from `row` on, of which the first `live` are the request's, as panels of 64 columns.
  template <int kRows, int kPanels>
  __device__ static void feed_panels(unsigned char* to, const CUtensorMap& map, int head, int row, int live,
                                     uint64_t* full) {
    const int y = kRows - min(live, kRows);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel)
      ptx::tma_load_4d(to + panel * kRows * Config::kRowBytes, &map, panel * Config::kPanelColumns, head, y,
                       row - y + kRows, full);
  }

  // Each group's rows as soon as it has done with those before.
  __device__ void feed_query(const PrefillItem& item) {
    for (int group = 0; group < Config::kGroups; ++group) {
      ptx::mbarrier_wait(&small_.query_empty[group], query_phase_ ^ 1);
      uint64_t* full = &small_.query_full[group];
      ptx::mbarrier_arrive_expect(full, Config::kQueryBytes);
      unsigned char* to = query_ + group * Config::kQueryBytes;
      // A group without rows gets the item's last one, which it does not write: no copy is without a row.
      const int first = min(group * Config::kGroupRows, item.rows - 1);
      const int row = item.q_row + first, live = item.rows - first;
      feed_panels<Config::kGroupRows, Config::kNopePanels>(to, maps_.q_nope, item.head, row, live, full);
      if constexpr (Config::kRope > 0)
        feed_panels<Config::kGroupRows, 1>(to + Config::kNopePanels * Config::kQueryPanelBytes, maps_.q_pe,
                                           item.head, row, live, full);
    }
    query_phase_ ^= 1;
  }
  __device__ void feed_keys(const PrefillItem& item, int tile) {
    ptx::mbarrier_wait(&small_.key_empty[key_.slot], key_.phase ^ 1);
    uint64_t* full = &small_.key_full[key_.slot];
    ptx::mbarrier_arrive_expect(full, Config::kKeyBytes);
    const int first = tile * Config::kKeys, row = item.kv_row + first, live = item.kv_len - first;
    feed_panels<Config::kKeys, Config::kNopePanels>(key_tile(), maps_.k_nope, item.head, row, live, full);
    if constexpr (Config::kRope > 0)
      feed_panels<Config::kKeys, 1>(key_tile() + Config::kNopePanels * Config::kKeyPanelBytes, maps_.k_pe,
                                    maps_.k_pe_is_shared ? 0 : item.head, row, live, full);
    key_.skip(1);
  }
  __device__ void feed_values(const PrefillItem& item, int tile) {
    ptx::mbarrier_wait(&small_.value_empty[value_.slot], value_.phase ^ 1);
    uint64_t* full = &small_.value_full[value_.slot];
    ptx::mbarrier_arrive_expect(full, Config::kValueBytes);
    const int first = tile * Config::kKeys;
    feed_panels<Config::kKeys, Config::kValuePanels>(value_tile(), maps_.v, item.head, item.kv_row + first,
                                                     item.kv_len - first, full);
    value_.skip(1);
  }

  // --- The warpgroups ---

  __device__ int group() const { return warp_ / 4; }
  // Rows of the item that this thread's scores and outputs belong to: this one and eight rows on.
  __device__ int first_row() const { return warp_ * 16 + lane_ / 4; }
  __device__ unsigned char* key_tile() { return keys_ + key_.slot * Config::kKeyBytes; }
  __device__ unsigned char* value_tile() { return values_ + value_.slot * Config::kValueBytes; }

  __device__ void take_turn() { ptx::named_barrier_sync<Config::kConsumers>(1 + group()); }
  __device__ void pass_turn() { ptx::named_barrier_arrive<Config::kConsumers>(2 - group()); }
  // This warp no longer needs what the barrier guards.
  __device__ void release(uint64_t* empty) {
    __syncwarp();
    if (lane_ == 0) ptx::mbarrier_arrive(empty);
  }

  __device__ void serve() {
    if (group() == 1) pass_turn();  // group 0 begins
    for (RingCursor<Config::kItemSlots> slot;; slot.skip(1)) {
      ptx::mbarrier_wait(&small_.item_full[slot.slot], slot.phase);
      const PrefillItem item = small_.item[slot.slot];
      release(&small_.item_empty[slot.slot]);
      if (item.rows == 0) break;
      const int tiles = num_tiles(item);
      if (tiles > 0) attend(item, tiles);
      write_rows(item, tiles > 0);
    }
  }

  using Scores = float[Config::kScores];
  using Weights = uint32_t[Config::kKeys / 16][4];  // scores rounded to T, in twos, as a product takes them
  __device__ void attend(const PrefillItem& item, int tiles);
  template <bool kMasked>
  __device__ void step(const PrefillItem& item, int tile, Scores& s, Weights& weights);
  __device__ void start_scores(Scores& s);
  __device__ void start_values(const Weights& weights, bool accumulate);
  __device__ void end_values();
  __device__ void mask(Scores& s, const PrefillItem& item, int tile) const;
  __device__ void soften(Scores& s, float (&rescale)[2]);
  __device__ static void round(const Scores& s, Weights& weights);
  __device__ void write_rows(const PrefillItem& item, bool has_keys);

  const PrefillParams& p_;
  const PrefillMaps& maps_;
  unsigned char* query_;   // [group][panel][row] of 128 bytes
  unsigned char* keys_;    // [stage][panel][key] of 128 bytes
  unsigned char* values_;  // the same
  Small& small_;
  const int warp_, lane_;
  Cursor key_, value_;  // of the next tile
  int query_phase_ = 0;

  float out_[Config::kValueParts][Config::kOuts];  // unnormalised
  float max_[2], sum_[2];  // of the two rows, base-2 domain; sums of this thread's keys alone
};

}  // namespace latent::attention::cuda
