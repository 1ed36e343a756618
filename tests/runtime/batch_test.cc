// SPDX-License-Identifier: Apache-2.0
#include "runtime/batch.h"

#include <gtest/gtest.h>

#include <numeric>

namespace latent::runtime {
namespace {

constexpr exec::StepLimits kLimits{.max_tokens = 8, .max_seqs = 3, .max_outputs = 4, .max_pages = 5};
constexpr int kPageTokens = 4;

using Ids = std::vector<int32_t>;
Ids ids(std::span<const int32_t> span) { return {span.begin(), span.end()}; }

class BatchTest : public ::testing::Test {
 protected:
  BatchTest() : tokens_(20) { std::iota(tokens_.begin(), tokens_.end(), 100); }
  Ids tokens_;
  Ids pages_{7, 3, 9, 2, 5};
  Batch batch_{kLimits, kPageTokens};
};

TEST_F(BatchTest, a_prefill_chunk_goes_to_the_slots_of_its_positions) {
  batch_.add({.tokens = tokens_, .pages = pages_, .begin = 3, .end = 9, .num_outputs = 1});
  const exec::StepInputs in = batch_.inputs();
  EXPECT_EQ(ids(in.token_ids), (Ids{103, 104, 105, 106, 107, 108}));
  EXPECT_EQ(ids(in.positions), (Ids{3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(ids(in.slots), (Ids{7 * 4 + 3, 3 * 4, 3 * 4 + 1, 3 * 4 + 2, 3 * 4 + 3, 9 * 4}));
  EXPECT_EQ(ids(in.q_starts), (Ids{0, 6}));
  EXPECT_EQ(ids(in.kv_lens), (Ids{9}));
  EXPECT_EQ(ids(in.output_rows), (Ids{5}));
  // Pages past the last token are not shown, though the request holds them.
  EXPECT_EQ(ids(in.block_table), (Ids{7, 3, 9, ops::kNullPage, ops::kNullPage}));
  EXPECT_EQ(in.block_table_width, 5);
}

TEST_F(BatchTest, requests_follow_each_other) {
  const Ids other_pages{1};
  batch_.add({.tokens = tokens_, .pages = pages_, .begin = 16, .end = 17, .num_outputs = 1});
  batch_.add({.tokens = tokens_, .pages = other_pages, .begin = 0, .end = 2, .num_outputs = 2});
  const exec::StepInputs in = batch_.inputs();
  EXPECT_EQ(ids(in.q_starts), (Ids{0, 1, 3}));
  EXPECT_EQ(ids(in.kv_lens), (Ids{17, 2}));
  EXPECT_EQ(ids(in.output_rows), (Ids{0, 1, 2}));
  EXPECT_EQ(ids(in.block_table), (Ids{7, 3, 9, 2, 5, 1, 0, 0, 0, 0}));
}

// contract: C2
TEST_F(BatchTest, padding_has_no_keys_no_slot_and_the_null_page) {
  batch_.add({.tokens = tokens_, .pages = pages_, .begin = 0, .end = 1, .num_outputs = 1});
  batch_.add_padding(2);
  const exec::StepInputs in = batch_.inputs();
  EXPECT_EQ(ids(in.slots), (Ids{28, ops::kSkipSlot, ops::kSkipSlot}));
  EXPECT_EQ(ids(in.kv_lens), (Ids{1, 0, 0}));
  EXPECT_EQ(ids(in.q_starts), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(ids(in.output_rows), (Ids{0}));
  EXPECT_EQ(ids(in.block_table).size(), 15u);
  EXPECT_EQ(in.block_table[5], ops::kNullPage);
}

TEST_F(BatchTest, nothing_remains_after_clear) {
  batch_.add({.tokens = tokens_, .pages = pages_, .begin = 0, .end = 8, .num_outputs = 4});
  batch_.clear();
  EXPECT_EQ(batch_.num_tokens() + batch_.num_seqs() + batch_.num_outputs(), 0);
  EXPECT_EQ(ids(batch_.inputs().q_starts), (Ids{0}));
  EXPECT_TRUE(batch_.inputs().block_table.empty());
}

// contract: C13
TEST_F(BatchTest, memory_stays_where_it_is) {
  batch_.add({.tokens = tokens_, .pages = pages_, .begin = 0, .end = 8, .num_outputs = 4});
  const int32_t* before = batch_.inputs().block_table.data();
  batch_.clear();
  batch_.add({.tokens = tokens_, .pages = pages_, .begin = 0, .end = 6});
  batch_.add_padding(2);
  EXPECT_EQ(batch_.inputs().block_table.data(), before);
}

// contract: C13
TEST_F(BatchTest, a_step_beyond_its_limits_is_our_bug) {
  EXPECT_DEATH(batch_.add({.tokens = tokens_, .pages = pages_, .begin = 0, .end = 9}), "9 tokens; at most 8");
  EXPECT_DEATH(batch_.add_padding(4), "more than 3 requests");
  EXPECT_DEATH(batch_.add({.tokens = tokens_, .pages = pages_, .begin = 0, .end = 5, .num_outputs = 5}),
               "5 outputs");
  EXPECT_DEATH(batch_.add({.tokens = tokens_, .pages = Ids{1}, .begin = 3, .end = 5}), "need 2 pages");
  EXPECT_DEATH(batch_.add({.tokens = tokens_, .pages = pages_, .begin = 2, .end = 2}), "rows 2 to 2");
}

}  // namespace
}  // namespace latent::runtime
