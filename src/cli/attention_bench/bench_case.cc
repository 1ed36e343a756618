// SPDX-License-Identifier: Apache-2.0
#include "cli/attention_bench/bench_case.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace latent::cli {

std::string to_string(const BenchCase& c) {
  return fmt::format("heads {}, q {}, batch {} and {} padded rows, {} {}, cache {}", c.heads, c.q_len,
                     c.batch, c.padded, c.len, c.varied ? "varied" : "equal", latent::to_string(c.cache));
}

std::vector<int32_t> kv_lens(const BenchCase& c) {
  std::vector<int32_t> lens(static_cast<size_t>(c.batch), c.len);
  if (!c.varied) return lens;
  std::mt19937_64 engine(20261130);
  std::normal_distribution<double> normal(c.len, c.len / 2.0);
  for (int32_t& len : lens)
    len = static_cast<int32_t>(
        std::clamp(std::round(normal(engine)), std::max(16.0, double{1} * c.q_len), 2.0 * c.len));
  return lens;
}

BenchWork work_of(const BenchCase& c) {
  const std::vector<int32_t> lens = kv_lens(c);
  const int64_t tokens = std::accumulate(lens.begin(), lens.end(), int64_t{0});
  const double rows = double{1} * c.batch * c.q_len * c.heads, padded = double{1} * c.padded * c.heads;
  return {.tokens = tokens,
          .bytes = static_cast<double>(tokens) * static_cast<double>(bench_layout(c.cache).token_bytes()) +
                   2.0 * rows * (kBenchWidth + kBenchKvRank) + 2.0 * padded * kBenchKvRank,
          .flops = 2.0 * c.heads * c.q_len * static_cast<double>(tokens) * (kBenchWidth + kBenchKvRank)};
}

std::vector<BenchCase> judged_cases() {
  return {{.heads = 128, .batch = 128, .len = 8192},
          {.heads = 128, .q_len = 2, .batch = 128, .len = 32768},
          {.heads = 128, .batch = 128, .len = 1024},
          {.heads = 64, .batch = 128, .len = 8192},
          {.heads = 64, .batch = 128, .len = 8192, .varied = true},
          {.heads = 16, .batch = 128, .len = 32768},
          {.heads = 16, .batch = 128, .len = 4096, .varied = true},
          {.heads = 16, .batch = 32, .len = 1024},
          {.heads = 16, .batch = 1, .len = 8192},
          {.heads = 16, .batch = 1, .len = 32768},
          {.heads = 128, .batch = 1, .len = 32768}};
}

}  // namespace latent::cli
