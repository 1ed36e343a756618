// SPDX-License-Identifier: Apache-2.0
#include "runtime/scheduler.h"

#include <gtest/gtest.h>

namespace latent::runtime {
namespace {

std::unique_ptr<Sequence> make_sequence(RequestId id, int prompt_tokens) {
  auto sequence = std::make_unique<Sequence>(id, Request{}, nullptr);
  sequence->tokens.assign(static_cast<size_t>(prompt_tokens), 1);
  sequence->prompt_tokens = prompt_tokens;
  return sequence;
}

TEST(Scheduler, a_prompt_is_cut_into_chunks_and_its_answer_into_single_tokens) {
  Scheduler scheduler(4);
  const std::unique_ptr<Sequence> sequence = make_sequence(1, 10);
  scheduler.add(sequence.get());
  std::vector<std::pair<int, int>> steps;
  while (sequence->num_tokens() < 13) {
    const StepWork work = *scheduler.next();
    EXPECT_EQ(work.sequence, sequence.get());
    EXPECT_EQ(work.is_prompt, work.begin < 10);
    steps.emplace_back(work.begin, work.end);
    sequence->num_computed = work.end;
    if (work.end == sequence->num_tokens()) sequence->tokens.push_back(2);
  }
  EXPECT_EQ(steps, (std::vector<std::pair<int, int>>{{0, 4}, {4, 8}, {8, 10}, {10, 11}, {11, 12}}));
}

TEST(Scheduler, requests_are_served_in_the_order_they_came) {
  Scheduler scheduler(4);
  EXPECT_FALSE(scheduler.next().has_value());
  const std::unique_ptr<Sequence> a = make_sequence(1, 3), b = make_sequence(2, 3), c = make_sequence(3, 3);
  for (const auto* sequence : {&a, &b, &c}) scheduler.add(sequence->get());
  EXPECT_EQ(scheduler.next()->sequence, a.get());
  scheduler.remove(b.get());  // while it waits
  EXPECT_EQ(scheduler.next()->sequence, a.get());
  scheduler.remove(a.get());
  EXPECT_EQ(scheduler.next()->sequence, c.get());
  scheduler.remove(a.get());  // gone already
  scheduler.remove(c.get());
  EXPECT_FALSE(scheduler.next().has_value());
}

}  // namespace
}  // namespace latent::runtime
