// SPDX-License-Identifier: Apache-2.0
// Compute threads: OpenMP's where it is built in; else threads are started for each team, which is slow, but
// lets ThreadSanitizer see every synchronisation (it cannot look into OpenMP). Never nested, never
// oversubscribed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#ifdef LATENT_OPENMP
#include <omp.h>
#endif

namespace latent {

// Cores this process may run on (affinity and cgroup quota respected), at least 1.
int available_cores();

// A half-open range of work.
struct Range {
  int64_t begin;
  int64_t end;
  int64_t size() const { return end - begin; }
};

// Part `index` of `parts` of [0, total), in multiples of `grain`: one long contiguous range a thread, which
// is what memory streams want.
constexpr Range split_range(int64_t total, int index, int parts, int64_t grain = 1) {
  const int64_t units = (total + grain - 1) / grain;
  const int64_t begin = units * index / parts * grain;
  const int64_t end = units * (index + 1) / parts * grain;
  return {begin < total ? begin : total, end < total ? end : total};
}

#ifndef LATENT_OPENMP
// member(body, thread, num_threads) on every thread of a team; a team within a team has one thread.
void run_started_team(int num_threads, void (*member)(void* body, int thread, int num_threads), void* body);
#endif

// Runs body(thread, num_threads) on every thread of the team and waits for all. `num_threads` passed to the
// body is the size the team really has.
template <class Body>
void parallel_team(int num_threads, Body&& body) {
#ifdef LATENT_OPENMP
  if (num_threads > 1) {
#pragma omp parallel num_threads(num_threads)
    body(omp_get_thread_num(), omp_get_num_threads());
    return;
  }
  body(0, 1);
#else
  using Callable = std::remove_reference_t<Body>;
  run_started_team(
      num_threads,
      [](void* callable, int thread, int threads) { (*static_cast<Callable*>(callable))(thread, threads); },
      const_cast<std::remove_const_t<Callable>*>(std::addressof(body)));
#endif
}

// Runs body(Range) over [0, total) split into one contiguous range a thread.
template <class Body>
void parallel_ranges(int num_threads, int64_t total, int64_t grain, Body&& body) {
  if (total <= grain) num_threads = 1;
  parallel_team(num_threads, [&](int thread, int threads) {
    const Range range = split_range(total, thread, threads, grain);
    if (range.size() > 0) body(range);
  });
}

// [0, total) in blocks of `grain`: each thread walks a contiguous part of its own in ascending order, and
// one that is done early takes over blocks of the others'. Which thread does a block is not fixed.
class SharedRanges {
 public:
  SharedRanges(int64_t total, int num_threads, int64_t grain)
      : total_(total), grain_(grain), num_parts_(num_threads < kMaxParts ? num_threads : kMaxParts) {}

  // Calls body(Range) for blocks until none is left; once on each thread.
  template <class Body>
  void for_each(int thread, Body&& body) {
    for (int i = 0; i < num_parts_; ++i) {
      const int part = (thread + i) % num_parts_;
      const Range range = split_range(total_, part, num_parts_, grain_);
      for (;;) {
        const int64_t begin =
            range.begin + taken_[part].blocks.fetch_add(1, std::memory_order_relaxed) * grain_;
        if (begin >= range.end) break;
        body(Range{begin, begin + grain_ < range.end ? begin + grain_ : range.end});
      }
    }
  }

 private:
  static constexpr int kMaxParts = 64;
  struct alignas(64) Taken {
    std::atomic<int64_t> blocks{0};
  };
  int64_t total_, grain_;
  int num_parts_;
  Taken taken_[kMaxParts];
};

}  // namespace latent
