// SPDX-License-Identifier: Apache-2.0
// Rotating input sets of one case: queries, pages and outputs of their own for each, so that one pass over
// them reads far more than the caches hold. Lengths are the same in all, so one plan serves all.
#pragma once

#include <memory>
#include <vector>

#include "attention/backend.h"
#include "cli/attention_bench/bench_case.h"
#include "cli/attention_bench/machine.h"

namespace latent::cli {

// Cache pages full of N(0, 1), handed out in random order, round and round.
class PagePool {
 public:
  static Result<PagePool> create(Machine& machine, DType cache, size_t num_bytes);

  int32_t next_page();
  std::byte* data() const { return pages_.get(); }
  int64_t num_pages() const { return num_pages_; }
  int64_t page_bytes() const { return bench_layout(cache_).page_bytes(); }
  TensorView view() const;

 private:
  DType cache_ = DType::kBF16;
  std::shared_ptr<std::byte> pages_;
  int64_t num_pages_ = 0;
  std::vector<int32_t> order_;  // of all but page 0
  size_t next_ = 0;
};

// A pass reads 1 GB of cache, if 200 sets do.
int num_input_sets(const BenchCase& c);
// Enough for a pass of every case.
size_t least_pool_bytes(const std::vector<BenchCase>& cases);

class InputSets {
 public:
  static Result<InputSets> create(Machine& machine, const BenchCase& c, PagePool& pool);

  const BenchCase& problem() const { return case_; }
  int count() const { return static_cast<int>(params_.size()); }
  const ops::MlaAttentionParams& params(int64_t index) const {
    return params_[static_cast<size_t>(index) % params_.size()];
  }
  attention::MlaDesc desc() const;
  attention::Limits limits(int num_threads) const;
  attention::SeqLengths lengths() const { return {.q_starts = q_starts_, .kv_lens = kv_lens_}; }

 private:
  BenchCase case_;
  bool on_device_ = false;
  std::vector<int32_t> q_starts_, kv_lens_;
  std::vector<std::shared_ptr<std::byte>> memory_;
  std::vector<ops::MlaAttentionParams> params_;
};

ops::MlaAttentionAttrs bench_attrs(int heads);

}  // namespace latent::cli
