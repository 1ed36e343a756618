// SPDX-License-Identifier: Apache-2.0
#include "cli/attention_bench/inputs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/math.h"
#include "kernels/kv_row.h"

namespace latent::cli {
namespace {

constexpr double kPassBytes = 1e9;
constexpr int kMaxSets = 200;

int64_t pages_of(int32_t len) { return ceil_div(len, kBenchPageTokens); }

int64_t pages_of(const BenchCase& c) {
  int64_t pages = 0;
  for (const int32_t len : kv_lens(c)) pages += pages_of(len);
  return pages;
}

// Memory of one kind for all sets, each part starting at a multiple of 256 bytes.
struct Slab {
  std::shared_ptr<std::byte> memory;
  size_t stride = 0;
  std::byte* part(int set) const { return memory.get() + stride * static_cast<size_t>(set); }
};

Result<Slab> make_slab(Machine& machine, int64_t num_bytes, int sets) {
  Slab slab{.memory = nullptr, .stride = round_up(static_cast<size_t>(num_bytes), size_t{256})};
  Result<std::shared_ptr<std::byte>> memory = machine.allocate(slab.stride * static_cast<size_t>(sets));
  if (!memory) return memory.error();
  slab.memory = *std::move(memory);
  return slab;
}

// Pages of rows of N(0, 1), which a pool repeats.
std::vector<std::byte> pages_of_codes(const ops::KvLayout& layout) {
  constexpr int64_t kTokens = 256 * kBenchPageTokens;
  std::vector<std::byte> pages(static_cast<size_t>(kTokens * layout.token_bytes()));
  std::mt19937_64 engine(1);
  std::normal_distribution<float> normal;
  std::vector<float> row(kBenchWidth);
  for (int64_t t = 0; t < kTokens; ++t) {
    for (float& x : row) x = normal(engine);
    kernels::encode_kv_columns(layout, row.data(), 0, kBenchWidth, kBenchCacheScale,
                               pages.data() + t * layout.token_bytes());
  }
  return pages;
}

}  // namespace

Result<PagePool> PagePool::create(Machine& machine, DType cache, size_t num_bytes) {
  PagePool pool;
  pool.cache_ = cache;
  pool.num_pages_ = std::max<int64_t>(2, static_cast<int64_t>(num_bytes) / pool.page_bytes());
  const int64_t bytes = pool.num_pages_ * pool.page_bytes();
  Result<std::shared_ptr<std::byte>> memory = machine.allocate(static_cast<size_t>(bytes));
  if (!memory) return memory.error();
  pool.pages_ = *std::move(memory);
  if (cache == DType::kBF16) {
    machine.fill_normal(pool.pages_.get(), bytes / 2, 1);
  } else {
    const std::vector<std::byte> pages = pages_of_codes(bench_layout(cache));
    for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(pages.size()))
      machine.copy_in(pool.pages_.get() + at, pages.data(),
                      std::min(pages.size(), static_cast<size_t>(bytes - at)));
  }
  // Page 0 is nobody's.
  pool.order_.resize(static_cast<size_t>(pool.num_pages_ - 1));
  std::iota(pool.order_.begin(), pool.order_.end(), 1);
  std::shuffle(pool.order_.begin(), pool.order_.end(), std::mt19937_64(2));
  return pool;
}

int32_t PagePool::next_page() {
  const int32_t page = order_[next_];
  next_ = (next_ + 1) % order_.size();
  return page;
}

TensorView PagePool::view() const {
  return {pages_.get(), cache_, {num_pages(), kBenchPageTokens, bench_layout(cache_).width()}};
}

int num_input_sets(const BenchCase& c) {
  const auto bytes = static_cast<double>(pages_of(c) * bench_layout(c.cache).page_bytes());
  return static_cast<int>(std::clamp(std::ceil(kPassBytes / bytes), 1.0, double{kMaxSets}));
}

size_t least_pool_bytes(const std::vector<BenchCase>& cases) {
  int64_t bytes = 0;
  for (const BenchCase& c : cases)
    bytes = std::max(bytes, (pages_of(c) * num_input_sets(c) + 1) * bench_layout(c.cache).page_bytes());
  return static_cast<size_t>(bytes);
}

ops::MlaAttentionAttrs bench_attrs(int heads) {
  return {.form = ops::AttentionForm::kAbsorbed,
          .num_heads = heads,
          .kv_rank = kBenchKvRank,
          .rope_dim = kBenchRope,
          .nope_dim = 128,
          .v_dim = 128,
          .page_tokens = kBenchPageTokens,
          .softmax_scale = 1.0f / 24};
}

Result<InputSets> InputSets::create(Machine& machine, const BenchCase& c, PagePool& pool) {
  InputSets in;
  in.case_ = c;
  in.on_device_ = machine.is_device();
  in.kv_lens_ = kv_lens(c);
  for (int s = 0; s <= c.batch; ++s) in.q_starts_.push_back(s * c.q_len);
  const int sets = num_input_sets(c);
  if (pages_of(c) >= pool.num_pages())
    return make_error(ErrorCode::kInvalidArgument,
                      "{} pages of cache do not fit a pool of {}; --pool-gb {:.4f} holds them", pages_of(c),
                      pool.num_pages(), 1e-9 * static_cast<double>((pages_of(c) + 1) * pool.page_bytes()));
  const int64_t batch = c.batch, tokens = batch * c.q_len + c.padded;
  const int64_t columns = pages_of(*std::max_element(in.kv_lens_.begin(), in.kv_lens_.end()));
  const int64_t rows = tokens * c.heads, ids = 2 * batch + 1;
  const int64_t sizes[] = {rows * kBenchWidth * 2, rows * kBenchKvRank * 2, rows * 4,
                           (ids + batch * columns) * 4};
  std::vector<Slab> slabs;
  for (const int64_t size : sizes) {
    Result<Slab> slab = make_slab(machine, size, sets);
    if (!slab) return slab.error();
    in.memory_.push_back(slab->memory);
    slabs.push_back(*std::move(slab));
  }
  machine.fill_normal(slabs[0].memory.get(), static_cast<int64_t>(slabs[0].stride) * sets / 2, 3);
  for (int set = 0; set < sets; ++set) {
    // q_starts, kv_lens and the block table lie one behind the other.
    std::vector<int32_t> words(in.q_starts_);
    words.insert(words.end(), in.kv_lens_.begin(), in.kv_lens_.end());
    words.resize(static_cast<size_t>(ids + batch * columns), INT32_MAX);
    for (int64_t s = 0; s < batch; ++s)
      for (int64_t p = 0; p < pages_of(in.kv_lens_[static_cast<size_t>(s)]); ++p)
        words[static_cast<size_t>(ids + s * columns + p)] = pool.next_page();
    machine.copy_in(slabs[3].part(set), words.data(), words.size() * sizeof words[0]);
    auto* at = reinterpret_cast<int32_t*>(slabs[3].part(set));
    const TensorView q(slabs[0].part(set), DType::kBF16, {tokens, c.heads, kBenchWidth});
    in.params_.push_back({.q_nope = q.slice(2, 0, kBenchKvRank),
                          .q_pe = q.slice(2, kBenchKvRank, kBenchWidth),
                          .cache = pool.view(),
                          .batch = {.q_starts = {at, DType::kI32, {batch + 1}},
                                    .kv_lens = {at + batch + 1, DType::kI32, {batch}},
                                    .block_table = {at + ids, DType::kI32, {batch, columns}}},
                          .kv_b = {},
                          .out = {slabs[1].part(set), DType::kBF16, {tokens, c.heads, kBenchKvRank}},
                          .lse = {slabs[2].part(set), DType::kF32, {tokens, c.heads}},
                          .attrs = bench_attrs(c.heads),
                          .cache_scale = kBenchCacheScale});
  }
  return in;
}

attention::MlaDesc InputSets::desc() const {
  return {.attrs = bench_attrs(case_.heads), .cache_dtype = case_.cache, .on_device = on_device_};
}

attention::Limits InputSets::limits(int num_threads) const {
  return {.max_tokens = case_.batch * case_.q_len + case_.padded,
          .max_seqs = case_.batch,
          .max_kv_len = *std::max_element(kv_lens_.begin(), kv_lens_.end()),
          .num_threads = num_threads};
}

}  // namespace latent::cli
