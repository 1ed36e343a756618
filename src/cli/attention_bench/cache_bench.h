// SPDX-License-Identifier: Apache-2.0
// The cache kernels as the attention bench times them: latent 512, rope 64, pages of 64 tokens in random
// order, activations in bf16, angles and norm included in a write; on a GPU only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/attention_bench/bench_case.h"
#include "cli/attention_bench/machine.h"

namespace latent::cli {

enum class CacheOp { kWrite, kGather };

struct CacheBenchCase {
  CacheOp op = CacheOp::kWrite;
  DType cache = DType::kBF16;
  int batch = 1;
  int len = 1;  // tokens of each request that are written, or gathered as bf16

  int64_t tokens() const { return int64_t{batch} * len; }
};
std::string to_string(const CacheBenchCase& c);

// Bytes a call must move: a write reads latent, rope key, angles, position and slot of a token; a gather
// reads its row of the cache; either writes what it makes.
double bytes_of(const CacheBenchCase& c);

// Operands of several calls, so that one pass over them touches 1 GB where 200 sets do, and the pages they
// share.
class CacheCalls {
 public:
  static Result<CacheCalls> create(Machine& machine, const CacheBenchCase& c);

  int count() const { return count_; }
  const BenchCall& call() const { return call_; }
  // The cache, for the read ceiling.
  const std::byte* pages() const { return pages_.get(); }
  int64_t num_pages() const { return num_pages_; }

 private:
  std::vector<std::shared_ptr<std::byte>> memory_;
  std::shared_ptr<std::byte> pages_;
  int64_t num_pages_ = 0;
  int count_ = 0;
  BenchCall call_;
};

}  // namespace latent::cli
