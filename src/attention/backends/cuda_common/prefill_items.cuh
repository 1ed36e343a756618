// SPDX-License-Identifier: Apache-2.0
// The work of a prefill, cut into items: a block of query rows of one head of one request. CTAs draw items
// from one counter, in an order in which
//   - the keys of a section of heads stay in L2 while all their row blocks pass,
//   - within a section the blocks with most keys come first, so that the last ones to end are short.
// The order follows from the lengths alone; whoever draws an item finds it without a plan.
//
//   items:  request 0: | heads 0-15: block 7 of each, block 6 of each, … | heads 16-31: … |  request 1: | …
#pragma once

#include "attention/backends/cuda_common/prefill_params.h"

namespace latent::attention::cuda {

struct PrefillItem {
  int q_row;   // first row of the block
  int rows;    // of the block
  int kv_row;  // first key of the request
  int kv_len;  // its keys
  int head;
  int last_keys;  // keys that the block's last row sees
  int step;       // by how much fewer a row sees than the next one: 1 if causal, else 0

  // Keys that row `row` of the block sees; at most 0 for none.
  __device__ int num_keys(int row) const { return last_keys - step * (rows - 1 - row); }
};

// Called by one full warp; every lane returns the same. Items must be asked for in ascending order.
template <int kBlockRows>
class PrefillItems {
 public:
  // Sections of as many heads as keep `section_keys` keys in all.
  __device__ PrefillItems(const PrefillParams& params, int section_keys)
      : p_(params), section_keys_(section_keys), lane_(threadIdx.x % 32) {
    load();
  }

  // False if there are no more than num_items() items.
  __device__ bool find(int item, PrefillItem* found) {
    while (item >= first_item_ + p_.num_heads * all_blocks_) {
      first_item_ += p_.num_heads * all_blocks_;
      first_seq_ += 32;
      if (first_seq_ >= p_.num_seqs) return false;
      load();
    }
    const int place = item - first_item_;
    const int before = (blocks_end_ - blocks_) * p_.num_heads;
    const unsigned hit = __ballot_sync(0xFFFFFFFFu, place >= before && place < blocks_end_ * p_.num_heads);
    const int source = __ffs(static_cast<int>(hit)) - 1;
    fill(place - from(before, source), source, found);
    return true;
  }
  // Once find() has returned false.
  __device__ int num_items() const { return first_item_; }

 private:
  __device__ static int from(int x, int source) { return __shfl_sync(0xFFFFFFFFu, x, source); }

  // Each lane holds one of 32 requests.
  __device__ void load() {
    const int seq = first_seq_ + lane_;
    const bool is_one = seq < p_.num_seqs;
    q_start_ = is_one ? p_.q_starts[seq] : 0;
    q_len_ = is_one ? p_.q_starts[seq + 1] - q_start_ : 0;
    kv_start_ = is_one ? p_.kv_starts[seq] : 0;
    kv_len_ = is_one ? p_.kv_starts[seq + 1] - kv_start_ : 0;
    blocks_ = (q_len_ + kBlockRows - 1) / kBlockRows;
    blocks_end_ = blocks_;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int x = __shfl_up_sync(0xFFFFFFFFu, blocks_end_, d);
      if (lane_ >= d) blocks_end_ += x;
    }
    all_blocks_ = from(blocks_end_, 31);
  }

  __device__ void fill(int place, int source, PrefillItem* found) const {
    const int blocks = from(blocks_, source), q_len = from(q_len_, source), kv_len = from(kv_len_, source);
    const int most = max(1, min(p_.num_heads, section_keys_ / max(kv_len, 1)));
    const int sections = (p_.num_heads + most - 1) / most;
    const int section = (p_.num_heads + sections - 1) / sections;  // all of about one size
    const int first_head = place / (section * blocks) * section;
    const int heads = min(section, p_.num_heads - first_head);
    const int in_section = place % (section * blocks);
    const int first_row = (blocks - 1 - in_section / heads) * kBlockRows;
    const int rows = min(kBlockRows, q_len - first_row);
    *found = {.q_row = from(q_start_, source) + first_row,
              .rows = rows,
              .kv_row = from(kv_start_, source),
              .kv_len = kv_len,
              .head = first_head + in_section % heads,
              .last_keys = p_.causal ? kv_len - q_len + first_row + rows : kv_len,
              .step = p_.causal ? 1 : 0};
  }

  const PrefillParams& p_;
  const int section_keys_;
  const int lane_;
  int first_seq_ = 0, first_item_ = 0;
  int q_start_ = 0, q_len_ = 0, kv_start_ = 0, kv_len_ = 0;
  int blocks_ = 0, blocks_end_ = 0, all_blocks_ = 0;
};

}  // namespace latent::attention::cuda
