// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace latent {
namespace {

TEST(Parallel, ranges_cover_every_index_once_in_order) {
  for (const int64_t total : {0, 1, 7, 64, 129, 1000}) {
    for (const int parts : {1, 2, 3, 16}) {
      for (const int64_t grain : {1, 8, 64}) {
        int64_t next = 0;
        for (int i = 0; i < parts; ++i) {
          const Range r = split_range(total, i, parts, grain);
          EXPECT_EQ(r.begin, next);
          EXPECT_TRUE(r.begin % grain == 0 || r.begin == total);
          next = r.end;
        }
        EXPECT_EQ(next, total);
      }
    }
  }
}

TEST(Parallel, a_team_runs_each_member_once_and_says_its_size) {
  std::vector<std::atomic<int>> runs(8);
  std::atomic<int> size{0};
  parallel_team(3, [&](int thread, int threads) {
    ++runs[static_cast<size_t>(thread)];
    size = threads;
  });
  EXPECT_GE(size, 1);
  EXPECT_LE(size, 3);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(runs[static_cast<size_t>(i)], i < size ? 1 : 0);
}

TEST(Parallel, work_is_done_once_whatever_the_threads) {
  for (const int threads : {1, 2, 5}) {
    std::vector<std::atomic<int>> done(1003);
    parallel_ranges(threads, 1003, 10, [&](Range r) {
      for (int64_t i = r.begin; i < r.end; ++i) ++done[static_cast<size_t>(i)];
    });
    for (const auto& d : done) EXPECT_EQ(d, 1);
  }
}

TEST(Parallel, shared_ranges_are_done_once_by_however_many_threads_come) {
  for (const int threads : {1, 2, 5, 100}) {
    for (const int64_t total : {0, 1, 64, 1003}) {
      std::vector<std::atomic<int>> done(static_cast<size_t>(total));
      SharedRanges blocks(total, threads, 10);
      parallel_team(threads, [&](int thread, int) {
        blocks.for_each(thread, [&](Range r) {
          EXPECT_TRUE(r.size() > 0 && r.size() <= 10);
          for (int64_t i = r.begin; i < r.end; ++i) ++done[static_cast<size_t>(i)];
        });
      });
      for (const auto& d : done) EXPECT_EQ(d, 1);
    }
  }
}

TEST(Parallel, one_thread_of_shared_ranges_does_what_absent_ones_would) {
  std::vector<int> done(1003);
  SharedRanges(1003, 4, 10).for_each(2, [&](Range r) {
    for (int64_t i = r.begin; i < r.end; ++i) ++done[static_cast<size_t>(i)];
  });
  for (const int d : done) EXPECT_EQ(d, 1);
}

TEST(Parallel, a_team_within_a_team_has_one_member) {
  std::atomic<int> inner{0}, outer{0};
  parallel_team(3, [&](int, int threads) {
    outer = threads;
    parallel_team(3, [&](int thread, int inner_threads) {
      EXPECT_EQ(thread, 0);
      EXPECT_EQ(inner_threads, 1);
      ++inner;
    });
  });
  EXPECT_EQ(inner, outer);
}

TEST(Parallel, what_a_team_wrote_is_seen_after_it) {
  std::vector<int> written(64, 0);
  for (int round = 1; round <= 3; ++round) {
    parallel_ranges(4, 64, 1, [&](Range r) {
      for (int64_t i = r.begin; i < r.end; ++i) written[static_cast<size_t>(i)] += 1;
    });
    for (const int value : written) EXPECT_EQ(value, round);
  }
}

TEST(Parallel, nothing_to_do_runs_nothing) {
  parallel_ranges(4, 0, 1, [](Range) { ADD_FAILURE(); });
}

TEST(Parallel, there_is_a_core) { EXPECT_GE(available_cores(), 1); }

}  // namespace
}  // namespace latent
