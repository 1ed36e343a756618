// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cpu/absorbed_plan.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "attention/backends/cpu/lane_engine.h"
#include "base/check.h"
#include "base/math.h"

namespace latent::attention::cpu {
namespace {

// words: header, tasks, units; a unit is one word, task * kUnitsPerTask + chunk + 1.
constexpr int kHeaderWords = 4;
constexpr int kTaskWords = sizeof(AbsorbedTask) / sizeof(int32_t);
constexpr int kUnitsPerTask = 32;
static_assert(kMaxChunks < kUnitsPerTask);

int64_t task_cost(const AbsorbedTask& t) {
  return int64_t{t.num_keys} * ceil_div<int64_t>(t.num_lanes, kLanes);
}

int64_t unit_cost(const AbsorbedTask& t, int chunk) {
  if (chunk == kWholeTask) return task_cost(t);
  const int64_t keys = std::min(t.chunk_tokens, t.num_keys - chunk * t.chunk_tokens);
  return keys * ceil_div<int64_t>(t.num_lanes, kLanes);
}

class Planner {
 public:
  // Of tasks of up to `task_lanes` lanes.
  Planner(const MlaDesc& desc, int task_lanes, Plan* plan)
      : num_heads_(desc.attrs.num_heads), task_lanes_(task_lanes), words_(&plan->words) {
    words_->assign(kHeaderWords, 0);
  }

  // Tasks of rows [first, last) whose row i sees first_keys + i keys. Rows of equal chunks go together.
  void add_rows(int32_t seq, int32_t first, int32_t last, int32_t first_keys) {
    for (int32_t row = first; row < last;) {
      const int tokens = chunk_tokens(first_keys + row - first);
      int32_t end = row + 1;
      while (end < last && chunk_tokens(first_keys + end - first) == tokens) ++end;
      const int32_t lanes = (end - row) * num_heads_;
      for (int32_t lane = 0; lane < lanes; lane += task_lanes_) {
        const int32_t count = std::min<int32_t>(task_lanes_, lanes - lane);
        const int32_t last_row = row + (lane + count - 1) / num_heads_;
        add_task({.seq = seq,
                  .first_row = row,
                  .first_lane = lane,
                  .num_lanes = count,
                  .num_keys = first_keys + last_row - first,
                  .chunk_tokens = tokens,
                  .first_slot = kWholeTask,
                  .counter = 0});
      }
      row = end;
    }
  }

  // A task is split if it is more than half of a thread's share: fewer than 2 * num_threads tasks are.
  void add_units(int num_threads) {
    const int num_tasks = header(0);
    const int64_t total = total_cost();
    for (int i = 0; i < num_tasks; ++i) {
      AbsorbedTask t = task(i);
      const bool split = num_threads > 1 && t.num_chunks() > 1 && task_cost(t) * 2 * num_threads > total;
      if (split) {
        t.first_slot = header(2);
        t.counter = header(3)++;
        header(2) += t.num_chunks();
        std::memcpy(task_words(i), &t, sizeof t);
      }
      for (int chunk = split ? 0 : kWholeTask; chunk < (split ? t.num_chunks() : 0); ++chunk)
        words_->push_back(i * kUnitsPerTask + chunk + 1);
    }
    header(1) = static_cast<int32_t>(words_->size()) - units_begin();
    sort_units(num_threads);
  }

  // A unit is more than half of a thread's share, so that others may wait for it.
  bool is_uneven(int num_threads) {
    if (header(1) == 0) return false;
    const int32_t longest = (*words_)[static_cast<size_t>(units_begin())];
    const int64_t cost = unit_cost(task(longest / kUnitsPerTask), longest % kUnitsPerTask - 1);
    return num_threads > 1 && cost * 2 * num_threads > total_cost();
  }

 private:
  int32_t& header(int index) { return (*words_)[static_cast<size_t>(index)]; }
  int32_t units_begin() { return kHeaderWords + header(0) * kTaskWords; }
  int32_t* task_words(int index) { return words_->data() + kHeaderWords + index * kTaskWords; }
  AbsorbedTask task(int index) {
    AbsorbedTask t;
    std::memcpy(&t, task_words(index), sizeof t);
    return t;
  }

  int64_t total_cost() {
    int64_t total = 0;
    for (int i = 0; i < header(0); ++i) total += task_cost(task(i));
    return total;
  }

  void add_task(const AbsorbedTask& t) {
    const size_t at = words_->size();
    words_->resize(at + kTaskWords);
    std::memcpy(words_->data() + at, &t, sizeof t);
    ++header(0);
  }

  // Longest first, so that the threads end together. Of equal chunks each thread's likely ones follow each
  // other in memory: with two threads 0, 2, 1, 3.
  void sort_units(int num_threads) {
    const auto cost = [this](int32_t unit) {
      return unit_cost(task(unit / kUnitsPerTask), unit % kUnitsPerTask - 1);
    };
    std::sort(words_->begin() + units_begin(), words_->end(), [&](int32_t a, int32_t b) {
      const int64_t cost_a = cost(a), cost_b = cost(b);
      return cost_a != cost_b ? cost_a > cost_b : turn(a, num_threads) < turn(b, num_threads);
    });
  }

  // By task, by the place of a chunk in its thread's run, by run.
  std::tuple<int32_t, int32_t, int32_t> turn(int32_t unit, int num_threads) {
    const int32_t chunk = unit % kUnitsPerTask - 1;
    const int32_t run = std::max(1, ceil_div(task(unit / kUnitsPerTask).num_chunks(), num_threads));
    return {unit / kUnitsPerTask, chunk % run, chunk / run};
  }

  int32_t num_heads_, task_lanes_;
  std::vector<int32_t>* words_;
};

}  // namespace

int chunk_tokens(int num_keys) {
  return kChunkTokens * std::max(1, ceil_div(num_keys, kChunkTokens * kMaxChunks));
}

AbsorbedTask AbsorbedPlan::task(int index) const {
  AbsorbedTask t;
  std::memcpy(&t, words_ + kHeaderWords + index * kTaskWords, sizeof t);
  return t;
}

AbsorbedUnit AbsorbedPlan::unit(int index) const {
  const int32_t unit = words_[kHeaderWords + num_tasks() * kTaskWords + index];
  return {.task = unit / kUnitsPerTask, .chunk = unit % kUnitsPerTask - 1};
}

void plan_absorbed(const MlaDesc& desc, const Limits& limits, const SeqLengths& lengths, Plan* plan) {
  // Large tasks read a key once for many lanes; smaller ones feed more threads.
  for (int lanes = kTaskLanes; lanes >= kLanes; lanes /= 2) {
    Planner planner(desc, lanes, plan);
    for (size_t s = 0; s < lengths.kv_lens.size(); ++s) {
      const int32_t first = lengths.q_starts[s], last = lengths.q_starts[s + 1], kv_len = lengths.kv_lens[s];
      // Rows before position 0 have no keys; run() writes them with the padding.
      const int32_t first_live = std::max(first, last - kv_len);
      planner.add_rows(static_cast<int32_t>(s), first_live, last, kv_len - last + first_live + 1);
    }
    planner.add_units(limits.num_threads);
    if (!planner.is_uneven(limits.num_threads)) return;
  }
}

int64_t max_absorbed_plan_words(const MlaDesc& desc, const Limits& limits) {
  const int64_t tasks = int64_t{limits.max_tokens} * ceil_div(desc.attrs.num_heads, kLanes);
  return kHeaderWords + tasks * (kTaskWords + 1) + max_absorbed_slots(limits);
}

int64_t max_absorbed_slots(const Limits& limits) {
  return limits.num_threads > 1 ? int64_t{2} * limits.num_threads * kMaxChunks : 0;
}

int max_task_lanes(const MlaDesc& desc, const Limits& limits) {
  const int64_t lanes = int64_t{limits.max_tokens} * desc.attrs.num_heads;
  return static_cast<int>(round_up<int64_t>(std::clamp<int64_t>(lanes, 1, kTaskLanes), kLanes));
}

}  // namespace latent::attention::cpu
