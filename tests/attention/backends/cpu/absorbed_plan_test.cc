// SPDX-License-Identifier: Apache-2.0
// The planner, whatever the lengths (field report A14): a step's keys are covered once, in pieces that depend
// on each row alone, and the pieces fit the workspace.
#include "attention/backends/cpu/absorbed_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "attention/backends/cpu/lane_engine.h"
#include "testing/random.h"

namespace latent {
namespace {

using namespace attention;
using cpu::AbsorbedPlan;
using cpu::AbsorbedTask;

struct Batch {
  MlaDesc desc;
  Limits limits;
  std::vector<int32_t> q_starts = {0}, kv_lens;
};

Batch random_batch(testing::Random& random) {
  Batch b;
  b.desc.attrs = {.num_heads = static_cast<int>(random.integer(1, 130)), .kv_rank = 8, .page_tokens = 16};
  const int64_t longest = random.integer(0, 3) == 0 ? 40000 : 1500;
  for (int64_t i = random.integer(0, 12); i > 0; --i) {
    b.q_starts.push_back(b.q_starts.back() + static_cast<int32_t>(random.integer(0, 9)));
    b.kv_lens.push_back(static_cast<int32_t>(random.integer(0, 4) == 0 ? 0 : random.integer(1, longest)));
  }
  b.limits = {.max_tokens = std::max(1, b.q_starts.back()),
              .max_seqs = static_cast<int>(b.kv_lens.size()),
              .max_kv_len = static_cast<int>(longest),
              .num_threads = static_cast<int>(random.integer(1, 16))};
  return b;
}

Plan make_plan(const Batch& b) {
  Plan plan;
  cpu::plan_absorbed(b.desc, b.limits, {.q_starts = b.q_starts, .kv_lens = b.kv_lens}, &plan);
  return plan;
}

// How often each (row, head) with keys is in a task, with the number of keys that the task gives it.
std::map<std::pair<int, int>, std::vector<int>> lanes_of(const AbsorbedPlan& plan, int heads) {
  std::map<std::pair<int, int>, std::vector<int>> lanes;
  for (int i = 0; i < plan.num_tasks(); ++i) {
    const AbsorbedTask t = plan.task(i);
    const int last_row = t.first_row + (t.first_lane + t.num_lanes - 1) / heads;
    for (int lane = t.first_lane; lane < t.first_lane + t.num_lanes; ++lane) {
      const int row = t.first_row + lane / heads;
      lanes[{row, lane % heads}].push_back(t.num_keys - (last_row - row));
    }
  }
  return lanes;
}

TEST(AbsorbedPlan, every_row_with_keys_has_one_lane_a_head_and_sees_its_own_keys) {
  for (uint64_t i = 0; i < 300; ++i) {
    testing::Random random(testing::test_seed(i));
    const Batch b = random_batch(random);
    const Plan plan = make_plan(b);
    const int heads = b.desc.attrs.num_heads;
    auto lanes = lanes_of(AbsorbedPlan(plan), heads);
    for (size_t s = 0; s < b.kv_lens.size(); ++s)
      for (int row = b.q_starts[s]; row < b.q_starts[s + 1]; ++row) {
        const int keys = b.kv_lens[s] - b.q_starts[s + 1] + row + 1;
        for (int head = 0; head < heads; ++head) {
          const auto found = lanes.find({row, head});
          ASSERT_EQ(found != lanes.end(), keys > 0) << random.seed();
          if (keys > 0) {
            ASSERT_EQ(found->second, std::vector<int>{keys}) << random.seed();
          }
        }
      }
  }
}

TEST(AbsorbedPlan, every_chunk_is_in_one_unit_and_none_is_empty) {
  for (uint64_t i = 0; i < 300; ++i) {
    testing::Random random(testing::test_seed(i));
    const Batch b = random_batch(random);
    const Plan words = make_plan(b);
    const AbsorbedPlan plan(words);
    std::map<int, std::vector<int>> chunks;
    for (int u = 0; u < plan.num_units(); ++u) chunks[plan.unit(u).task].push_back(plan.unit(u).chunk);
    ASSERT_EQ(static_cast<int>(chunks.size()), plan.num_tasks());
    int slots = 0, counters = 0;
    for (auto& [index, found] : chunks) {
      const AbsorbedTask t = plan.task(index);
      ASSERT_GT(t.num_keys, 0);
      ASSERT_LE(t.num_lanes, cpu::kTaskLanes);
      ASSERT_LE(t.num_chunks(), cpu::kMaxChunks);
      std::sort(found.begin(), found.end());
      if (t.first_slot == cpu::kWholeTask) {
        ASSERT_EQ(found, std::vector<int>{cpu::kWholeTask}) << random.seed();
        continue;
      }
      for (int chunk = 0; chunk < t.num_chunks(); ++chunk) {
        ASSERT_EQ(found[static_cast<size_t>(chunk)], chunk) << random.seed();
        ASSERT_LT(chunk * t.chunk_tokens, t.num_keys) << random.seed();
      }
      ASSERT_EQ(static_cast<int>(found.size()), t.num_chunks());
      ASSERT_EQ(t.first_slot, slots);
      ASSERT_EQ(t.counter, counters++);
      slots += t.num_chunks();
    }
    ASSERT_EQ(plan.num_slots(), slots);
    ASSERT_LE(slots, cpu::max_absorbed_slots(b.limits)) << random.seed();
    ASSERT_LE(static_cast<int64_t>(words.words.size()), cpu::max_absorbed_plan_words(b.desc, b.limits));
  }
}

TEST(AbsorbedPlan, the_split_of_a_row_depends_on_its_own_keys_alone) {
  for (uint64_t i = 0; i < 100; ++i) {
    testing::Random random(testing::test_seed(i));
    const Batch b = random_batch(random);
    const Plan words = make_plan(b);
    const AbsorbedPlan plan(words);
    for (int t = 0; t < plan.num_tasks(); ++t) {
      const AbsorbedTask task = plan.task(t);
      const int heads = b.desc.attrs.num_heads;
      const int rows = (task.first_lane + task.num_lanes - 1) / heads - task.first_lane / heads;
      for (int row = 0; row <= rows; ++row)
        ASSERT_EQ(task.chunk_tokens, cpu::chunk_tokens(task.num_keys - row)) << random.seed();
    }
  }
}

TEST(AbsorbedPlan, a_plan_is_a_function_of_its_arguments) {
  for (uint64_t i = 0; i < 50; ++i) {
    testing::Random random(testing::test_seed(i));
    const Batch b = random_batch(random);
    Plan again = make_plan(random_batch(random));  // whatever it held before
    cpu::plan_absorbed(b.desc, b.limits, {.q_starts = b.q_starts, .kv_lens = b.kv_lens}, &again);
    EXPECT_EQ(make_plan(b).words, again.words) << random.seed();
  }
}

// Threads take units in order: in turns they each walk one stretch of memory.
TEST(AbsorbedPlan, chunks_that_follow_each_other_fall_to_one_thread) {
  Batch b;
  b.desc.attrs = {.num_heads = 16, .kv_rank = 8, .page_tokens = 16};
  b.q_starts = {0, 1};
  b.kv_lens = {8 * cpu::kChunkTokens};
  b.limits = {.max_tokens = 1, .max_seqs = 1, .max_kv_len = b.kv_lens[0], .num_threads = 2};
  const Plan words = make_plan(b);
  const AbsorbedPlan plan(words);
  ASSERT_EQ(plan.num_units(), 8);
  for (int u = 2; u < 8; ++u) EXPECT_EQ(plan.unit(u).chunk, plan.unit(u - 2).chunk + 1) << u;
}

// 40 heads over little more than a chunk: three groups of lanes, so that no thread has all the work.
TEST(AbsorbedPlan, a_short_request_of_many_heads_is_for_several_threads) {
  Batch b;
  b.desc.attrs = {.num_heads = 40, .kv_rank = 8, .page_tokens = 16};
  b.q_starts = {0, 1};
  b.kv_lens = {cpu::kChunkTokens + 20};
  b.limits = {.max_tokens = 1, .max_seqs = 1, .max_kv_len = b.kv_lens[0], .num_threads = 2};
  const Plan words = make_plan(b);
  const AbsorbedPlan plan(words);
  ASSERT_EQ(plan.num_tasks(), 3);
  for (int t = 0; t < 3; ++t) EXPECT_LE(plan.task(t).num_lanes, cpu::kLanes);
}

}  // namespace
}  // namespace latent
