// SPDX-License-Identifier: Apache-2.0
#include "cli/ceilings.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/check.h"
#include "base/cpu_features.h"
#include "base/parallel.h"

namespace latent::cli {
namespace {

constexpr size_t kLine = 64;

typedef uint64_t Vec128 __attribute__((vector_size(16), may_alias));
typedef uint64_t Vec256 __attribute__((vector_size(32), may_alias));
typedef uint64_t Vec512 __attribute__((vector_size(64), may_alias));

// kStreams equal parts of the range are read side by side, one line each in turn; kUnroll accumulators a
// stream break the chain of additions; kPrefetch lines ahead are asked for.
template <class Vec, int kStreams, int kUnroll, int kPrefetch>
[[gnu::always_inline]] inline unsigned long long read_lines(const std::byte* begin, const std::byte* end) {
  constexpr size_t kStep = sizeof(Vec) * kUnroll > kLine ? sizeof(Vec) * kUnroll : kLine;
  constexpr size_t kVecs = kStep / sizeof(Vec);
  const size_t part = static_cast<size_t>(end - begin) / kStreams / kStep * kStep;
  Vec sums[kUnroll] = {};
  for (size_t at = 0; at < part; at += kStep) {
    for (size_t s = 0; s < kStreams; ++s) {
      const std::byte* line = begin + s * part + at;
      if constexpr (kPrefetch > 0)
        for (size_t l = 0; l < kStep; l += kLine) __builtin_prefetch(line + l + kPrefetch * kLine);
#pragma GCC unroll 16
      for (size_t v = 0; v < kVecs; ++v) sums[v % kUnroll] ^= reinterpret_cast<const Vec*>(line)[v];
    }
  }
  unsigned long long sum = 0;
  for (const std::byte* rest = begin + part * kStreams; rest < end; rest += sizeof(uint64_t))
    sum ^= *reinterpret_cast<const uint64_t*>(rest);
  for (const Vec& v : sums)
    for (size_t lane = 0; lane < sizeof(Vec) / sizeof(uint64_t); ++lane) sum ^= v[lane];
  return sum;
}

template <int kStreams, int kUnroll, int kPrefetch>
unsigned long long read_sse2(const std::byte* begin, const std::byte* end) {
  return read_lines<Vec128, kStreams, kUnroll, kPrefetch>(begin, end);
}
template <int kStreams, int kUnroll, int kPrefetch>
[[gnu::target("avx2")]] unsigned long long read_avx2(const std::byte* begin, const std::byte* end) {
  return read_lines<Vec256, kStreams, kUnroll, kPrefetch>(begin, end);
}
template <int kStreams, int kUnroll, int kPrefetch>
[[gnu::target("avx512f")]] unsigned long long read_avx512(const std::byte* begin, const std::byte* end) {
  return read_lines<Vec512, kStreams, kUnroll, kPrefetch>(begin, end);
}

std::atomic<unsigned long long> g_sink;  // what is read is used

// The whole lines of a region.
ByteRegion whole_lines(ByteRegion region) {
  const auto address = reinterpret_cast<uintptr_t>(region.data());
  const size_t skip = std::min((kLine - address % kLine) % kLine, region.size());
  return region.subspan(skip, (region.size() - skip) / kLine * kLine);
}

}  // namespace

std::vector<ReadForm> read_forms() {
  std::vector<ReadForm> forms = {
      {"sse2, 1 stream, 4 accumulators", read_sse2<1, 4, 0>},
      {"sse2, 1 stream, 8 accumulators", read_sse2<1, 8, 0>},
      {"sse2, 1 stream, 8 accumulators, prefetch 16 lines", read_sse2<1, 8, 16>},
      {"sse2, 2 streams, 4 accumulators", read_sse2<2, 4, 0>},
      {"sse2, 4 streams, 4 accumulators", read_sse2<4, 4, 0>},
      {"sse2, 8 streams, 4 accumulators", read_sse2<8, 4, 0>},
  };
  if (cpu_features().avx2) {
    forms.push_back({"avx2, 1 stream, 4 accumulators", read_avx2<1, 4, 0>});
    forms.push_back({"avx2, 1 stream, 8 accumulators", read_avx2<1, 8, 0>});
    forms.push_back({"avx2, 1 stream, 8 accumulators, prefetch 16 lines", read_avx2<1, 8, 16>});
    forms.push_back({"avx2, 2 streams, 4 accumulators", read_avx2<2, 4, 0>});
    forms.push_back({"avx2, 4 streams, 4 accumulators", read_avx2<4, 4, 0>});
  }
  if (cpu_features().avx512) {
    forms.push_back({"avx512, 1 stream, 4 accumulators", read_avx512<1, 4, 0>});
    forms.push_back({"avx512, 1 stream, 8 accumulators", read_avx512<1, 8, 0>});
    forms.push_back({"avx512, 1 stream, 8 accumulators, prefetch 16 lines", read_avx512<1, 8, 16>});
    forms.push_back({"avx512, 2 streams, 4 accumulators", read_avx512<2, 4, 0>});
    forms.push_back({"avx512, 4 streams, 1 accumulator", read_avx512<4, 1, 0>});
    forms.push_back({"avx512, 4 streams, 4 accumulators", read_avx512<4, 4, 0>});
  }
  return forms;
}

ReadCeiling::ReadCeiling(std::vector<ByteRegion> regions, size_t max_bytes, int num_threads)
    : num_threads_(num_threads), forms_(read_forms()), best_(forms_.size(), 0.0) {
  for (const ByteRegion& region : regions) {
    ByteRegion lines = whole_lines(region);
    lines = lines.first(std::min(lines.size(), (max_bytes - num_bytes_) / kLine * kLine));
    if (lines.empty()) continue;
    regions_.push_back(lines);
    num_bytes_ += lines.size();
  }
  CHECK(num_bytes_ > 0, "nothing to read");
}

double ReadCeiling::measure_form(size_t form) {
  const auto start = std::chrono::steady_clock::now();
  parallel_team(num_threads_, [&](int thread, int threads) {
    unsigned long long sum = 0;
    for (const ByteRegion& region : regions_) {
      const Range range = split_range(static_cast<int64_t>(region.size()), thread, threads, kLine);
      sum ^= forms_[form].read(region.data() + range.begin, region.data() + range.end);
    }
    g_sink.fetch_xor(sum, std::memory_order_relaxed);
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const double rate = static_cast<double>(num_bytes_) / seconds.count();
  best_[form] = std::max(best_[form], rate);
  return rate;
}

void ReadCeiling::measure() {
  for (size_t form = 0; form < forms_.size(); ++form) measure_form(form);
}

double ReadCeiling::measure_best() { return measure_form(best_index()); }

void ReadCeiling::measure_for(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int passes = 0;
  while (passes < 2 || std::chrono::steady_clock::now() < end) {
    measure();
    ++passes;
  }
}

size_t ReadCeiling::best_index() const {
  return static_cast<size_t>(std::max_element(best_.begin(), best_.end()) - best_.begin());
}

double ReadCeiling::best_bytes_per_second() const { return best_[best_index()]; }
const char* ReadCeiling::best_form() const { return forms_[best_index()].name; }

}  // namespace latent::cli
