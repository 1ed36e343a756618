// SPDX-License-Identifier: Apache-2.0
// The division of a batch's keys among CTAs, which each of them finds by itself: it must be one division.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "attention/backends/cuda_emulated/emulated_partition.h"
#include "base/math.h"
#include "testing/random.h"
#include "testing/sanitizer.h"

namespace latent::testing {
namespace {

struct Piece {
  int part, first, last;
};

struct Batch {
  std::vector<int32_t> kv_lens;
  int max_parts;
  EmulatedRule rule;

  int num_seqs() const { return static_cast<int>(kv_lens.size()); }
  int tiles(int seq) const { return ceil_div(kv_lens[static_cast<size_t>(seq)], rule.tile_tokens); }
};

std::string to_string(const Batch& b) {
  std::string text = std::to_string(b.max_parts) + " parts, least " + std::to_string(b.rule.least_tiles) +
                     ", stretch " + std::to_string(b.rule.least_stretch) + ", slack " +
                     std::to_string(b.rule.slack_tiles) + ", lengths";
  for (const int32_t len : b.kv_lens) text += " " + std::to_string(len);
  return text;
}

// More rows of 32 requests than are loaded ahead, now and then; requests without keys in between.
Batch random_batch(Random& random) {
  Batch b;
  const auto count = static_cast<int>(
      one_of<int64_t>(random, {1, 2, 31, 32, 33, random.integer(1, 40), random.integer(100, 300)}));
  const int64_t longest = one_of<int64_t>(random, {64, 700, 8192});
  const bool equal = random.integer(0, 3) == 0;
  for (int i = 0; i < count; ++i)
    b.kv_lens.push_back(static_cast<int32_t>(equal && i > 0              ? b.kv_lens[0]
                                             : random.integer(0, 5) == 0 ? 0
                                                                         : random.integer(1, longest)));
  b.max_parts = static_cast<int>(one_of<int64_t>(random, {1, 2, 7, 33, 66, 132}));
  b.rule.fixed_tiles = static_cast<int>(random.integer(0, 3));
  b.rule.least_tiles = static_cast<int>(random.integer(1, 2));
  b.rule.least_stretch = b.rule.least_tiles + static_cast<int>(random.integer(0, 2));
  b.rule.slack_tiles = static_cast<int>(random.integer(0, 4));
  return b;
}

// Of each request, in order; fails where parts overlap, leave tiles out or come out of order.
std::vector<std::vector<Piece>> pieces_of(const Batch& b, const std::vector<FoundStretch>& stretches) {
  std::vector<std::vector<Piece>> pieces(b.kv_lens.size());
  for (int part = 0; part < b.max_parts; ++part) {
    const FoundStretch& s = stretches[static_cast<size_t>(part)];
    EXPECT_EQ(s.parts, stretches[0].parts) << part;
    for (int seq = s.begin_seq; seq < b.num_seqs() && seq <= s.end_seq; ++seq) {
      const int first = seq == s.begin_seq ? s.begin_tile : 0,
                last = seq == s.end_seq ? s.end_tile : b.tiles(seq);
      if (first < last) pieces[static_cast<size_t>(seq)].push_back({part, first, last});
    }
  }
  for (int seq = 0; seq < b.num_seqs(); ++seq) {
    int next = 0;
    for (const Piece& p : pieces[static_cast<size_t>(seq)]) {
      EXPECT_EQ(p.first, next) << "request " << seq << " part " << p.part;
      next = p.last;
    }
    EXPECT_EQ(next, b.tiles(seq)) << "request " << seq;
  }
  return pieces;
}

TEST(Partition, every_tile_is_one_parts_and_those_who_share_a_request_agree_who_they_are) {
  if (kThreadSanitized) GTEST_SKIP() << "ThreadSanitizer does not know the emulator's threads";
  for (int i = 0; i < (kSanitized ? 20 : 100); ++i) {
    Random random(test_seed(static_cast<uint64_t>(i)));
    const Batch b = random_batch(random);
    SCOPED_TRACE(to_string(b));
    const std::vector<FoundStretch> stretches = find_stretches(b.kv_lens, b.max_parts, b.rule);
    const auto pieces = pieces_of(b, stretches);
    for (int seq = 0; seq < b.num_seqs(); ++seq) {
      const std::vector<Piece>& own = pieces[static_cast<size_t>(seq)];
      for (size_t j = 0; j < own.size(); ++j) {
        const Piece& p = own[j];
        EXPECT_EQ(p.part, own[0].part + static_cast<int>(j)) << "request " << seq << ": a part between";
        if (own.size() == 1) continue;
        EXPECT_GE(2 * (p.last - p.first), b.rule.least_tiles) << "request " << seq;
        const FoundStretch& s = stretches[static_cast<size_t>(p.part)];
        const FoundPieces& found = seq == s.begin_seq ? s.of_first : s.of_last;
        EXPECT_EQ(found.first_part, own[0].part) << "request " << seq << " part " << p.part;
        EXPECT_EQ(found.count, static_cast<int>(own.size())) << "request " << seq << " part " << p.part;
      }
    }
    if (HasFailure()) return;
  }
}

TEST(Partition, a_batch_that_fits_gives_no_part_more_than_an_even_share_and_the_slack) {
  if (kThreadSanitized) GTEST_SKIP() << "ThreadSanitizer does not know the emulator's threads";
  const Batch b{.kv_lens = std::vector<int32_t>(40, 1024), .max_parts = 132, .rule = {}};
  const auto pieces = pieces_of(b, find_stretches(b.kv_lens, b.max_parts, b.rule));
  const int share = ceil_div(40 * 16, 132);
  for (const std::vector<Piece>& own : pieces)
    for (const Piece& p : own) EXPECT_LE(p.last - p.first, share + b.rule.slack_tiles);
}

TEST(Partition, whole_requests_of_one_length_are_not_cut) {
  if (kThreadSanitized) GTEST_SKIP() << "ThreadSanitizer does not know the emulator's threads";
  const Batch b{.kv_lens = std::vector<int32_t>(128, 1024), .max_parts = 66, .rule = {}};
  for (const std::vector<Piece>& own : pieces_of(b, find_stretches(b.kv_lens, b.max_parts, b.rule)))
    EXPECT_EQ(own.size(), 1u);
}

}  // namespace
}  // namespace latent::testing
