// SPDX-License-Identifier: Apache-2.0
#include "cli/attention_bench/cache_bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/check.h"
#include "base/math.h"
#ifdef LATENT_CUDA
#include "attention/cache/cache_gather.h"
#include "attention/cache/cache_write.h"
#endif

namespace latent::cli {
namespace {

constexpr double kPassBytes = 1e9;
constexpr int kMaxSets = 200, kMaxPositions = 4096;
constexpr int64_t kRowBytes = kBenchWidth * 2;  // of activations and of what is gathered, bf16

}  // namespace

std::string to_string(const CacheBenchCase& c) {
  return fmt::format("{} batch {} len {} cache {}", c.op == CacheOp::kWrite ? "cache-write" : "gather",
                     c.batch, c.len, latent::to_string(c.cache));
}

double bytes_of(const CacheBenchCase& c) {
  const int64_t row = bench_layout(c.cache).token_bytes();
  const int64_t angles = kBenchRope * 4, ids = c.op == CacheOp::kWrite ? 8 : 0;
  return static_cast<double>(c.tokens() * (row + kRowBytes + (c.op == CacheOp::kWrite ? angles : 0) + ids));
}

#ifdef LATENT_CUDA
namespace {

struct Memory {
  Machine& machine;
  std::vector<std::shared_ptr<std::byte>>* owners;
  Error error;

  std::byte* take(int64_t bytes) {
    Result<std::shared_ptr<std::byte>> memory = machine.allocate(static_cast<size_t>(bytes));
    if (!memory) {
      error = memory.error();
      return nullptr;
    }
    owners->push_back(*memory);
    return memory->get();
  }
  std::byte* take_words(const std::vector<int32_t>& words) {
    std::byte* at = take(static_cast<int64_t>(words.size() * sizeof words[0]));
    if (at != nullptr) machine.copy_in(at, words.data(), words.size() * sizeof words[0]);
    return at;
  }
};

// Pages but page 0 in random order, as many as `count`.
std::vector<int32_t> random_pages(int64_t num_pages, int64_t count, uint64_t seed) {
  std::vector<int32_t> pages(static_cast<size_t>(num_pages - 1));
  std::iota(pages.begin(), pages.end(), 1);
  std::shuffle(pages.begin(), pages.end(), std::mt19937_64(seed));
  pages.resize(static_cast<size_t>(count));
  return pages;
}

}  // namespace

Result<CacheCalls> CacheCalls::create(Machine& machine, const CacheBenchCase& c) {
  CacheCalls calls;
  calls.count_ = static_cast<int>(std::clamp(std::ceil(kPassBytes / bytes_of(c)), 1.0, double{kMaxSets}));
  const ops::KvLayout layout = bench_layout(c.cache);
  const int64_t tokens = c.tokens(), columns = ceil_div(c.len, kBenchPageTokens);
  const int64_t used = c.batch * columns;
  calls.num_pages_ =
      std::max<int64_t>(used * std::min(calls.count_, 4) + 1, (int64_t{1} << 30) / layout.page_bytes());
  Memory memory{machine, &calls.memory_, {}};
  std::byte* pages = memory.take(calls.num_pages_ * layout.page_bytes());
  std::byte* rows = memory.take(tokens * kRowBytes * calls.count_);
  std::byte* angles = memory.take(int64_t{kMaxPositions} * kBenchRope * 4);
  std::byte* weight = memory.take(kBenchKvRank * 2);
  if (pages == nullptr || rows == nullptr || angles == nullptr || weight == nullptr) return memory.error;
  calls.pages_ = calls.memory_.front();
  const std::vector<std::byte> zeros(static_cast<size_t>(layout.page_bytes()));  // a code, a scale, a number
  for (int64_t page = 0; page < calls.num_pages_; ++page)
    machine.copy_in(pages + page * layout.page_bytes(), zeros.data(), zeros.size());
  machine.fill_normal(rows, tokens * kBenchWidth * calls.count_, 1);
  machine.fill_normal(angles, int64_t{kMaxPositions} * kBenchRope * 2, 2);  // any numbers will do
  machine.fill_normal(weight, kBenchKvRank, 3);
  std::vector<std::byte*> ids;
  for (int set = 0; set < calls.count_; ++set) {
    const std::vector<int32_t> own = random_pages(calls.num_pages_, used, static_cast<uint64_t>(set));
    std::vector<int32_t> words;
    if (c.op == CacheOp::kWrite) {  // slots, then positions
      for (int64_t t = 0; t < tokens; ++t)
        words.push_back(own[static_cast<size_t>(t / c.len * columns + t % c.len / kBenchPageTokens)] *
                            kBenchPageTokens +
                        static_cast<int32_t>(t % c.len % kBenchPageTokens));
      for (int64_t t = 0; t < tokens; ++t) words.push_back(static_cast<int32_t>(t % c.len % kMaxPositions));
    } else {  // the first rows, then the table
      for (int s = 0; s <= c.batch; ++s) words.push_back(s * c.len);
      words.insert(words.end(), own.begin(), own.end());
    }
    ids.push_back(memory.take_words(words));
    if (ids.back() == nullptr) return memory.error;
  }
  const TensorView cache(pages, c.cache, {calls.num_pages_, kBenchPageTokens, layout.width()});
  const auto set_of = [count = calls.count_](int64_t index) { return static_cast<size_t>(index % count); };
  const auto rows_of = [=](size_t set) {
    return TensorView(rows + static_cast<int64_t>(set) * tokens * kRowBytes, DType::kBF16,
                      {tokens, kBenchWidth});
  };
  if (c.op == CacheOp::kWrite)
    calls.call_ = [=](int64_t index, void* stream) {
      const size_t set = set_of(index);
      const Status status =
          attention::write_cache({.kv_c = rows_of(set).slice(1, 0, kBenchKvRank),
                                  .norm_weight = {weight, DType::kBF16, {kBenchKvRank}},
                                  .k_pe = rows_of(set).slice(1, kBenchKvRank, kBenchWidth),
                                  .positions = {ids[set] + tokens * 4, DType::kI32, {tokens}},
                                  .cos_sin = {angles, DType::kF32, {kMaxPositions, kBenchRope}},
                                  .slots = {ids[set], DType::kI32, {tokens}},
                                  .cache = cache,
                                  .scale = kBenchCacheScale},
                                 stream);
      CHECK(status.ok(), "{}", status.error().message);
    };
  else
    calls.call_ = [=, batch = int64_t{c.batch}](int64_t index, void* stream) {
      const size_t set = set_of(index);
      const Status status =
          attention::gather_cache({.cache = cache,
                                   .block_table = {ids[set] + (batch + 1) * 4, DType::kI32, {batch, columns}},
                                   .starts = {},
                                   .out_starts = {ids[set], DType::kI32, {batch + 1}},
                                   .out = rows_of(set),
                                   .kv_rank = kBenchKvRank,
                                   .rope_dim = kBenchRope,
                                   .scale = kBenchCacheScale},
                                  stream);
      CHECK(status.ok(), "{}", status.error().message);
    };
  return calls;
}
#else
Result<CacheCalls> CacheCalls::create(Machine&, const CacheBenchCase&) {
  return make_error(ErrorCode::kUnsupported, "the cache kernels were not built (LATENT_WITH_CUDA is off)");
}
#endif

}  // namespace latent::cli
