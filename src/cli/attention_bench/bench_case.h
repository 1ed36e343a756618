// SPDX-License-Identifier: Apache-2.0
// The decode problems that the attention bench times: absorbed form, latent 512, rope 64, pages of 64 tokens,
// bf16; the cache may hold codes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/kv_layout.h"

namespace latent::cli {

inline constexpr int kBenchKvRank = 512;
inline constexpr int kBenchRope = 64;
inline constexpr int kBenchWidth = kBenchKvRank + kBenchRope;
inline constexpr int kBenchPageTokens = 64;
inline constexpr float kBenchCacheScale = 1.0f / 64;  // of f8_e4m3: N(0, 1) ends far below 448 of them

inline ops::KvLayout bench_layout(DType cache) {
  return {.kv_rank = kBenchKvRank, .rope_dim = kBenchRope, .page_tokens = kBenchPageTokens, .dtype = cache};
}

struct BenchCase {
  int heads = 16;
  int q_len = 1;
  int batch = 1;
  int len = 8192;  // tokens in the cache of a request, their mean if varied
  DType cache = DType::kBF16;
  int padded = 0;       // rows of q and out after those of the last request, as a captured graph has them
  bool varied = false;  // normal with deviation len / 2, clipped to [16, 2 len], from a fixed seed
};

std::string to_string(const BenchCase& c);

// [batch], the same for every input set.
std::vector<int32_t> kv_lens(const BenchCase& c);

// What a call must do: every cached token read once, queries read once, outputs written once, zeros of padded
// rows too; products as if every query saw every key.
struct BenchWork {
  int64_t tokens = 0;  // in the caches of all requests
  double bytes = 0;
  double flops = 0;
};
BenchWork work_of(const BenchCase& c);

// The cases by which the GPU backends are judged.
std::vector<BenchCase> judged_cases();

}  // namespace latent::cli
