// SPDX-License-Identifier: Apache-2.0
// How an absorbed step is divided. A task is up to kTaskLanes lanes (rows x heads) of one request; its keys
// are walked in chunks whose size depends on a row's own number of keys alone, and merged in ascending order,
// so that a row's bits depend neither on the batch nor on the number of threads (contract C5). A task is done
// by one thread, unless it alone is a large part of the step: then each of its chunks is a unit of its own,
// with a place in the workspace for its state. Where chunks are still large parts, tasks have fewer lanes: no
// lane's bits depend on the lanes beside it.
#pragma once

#include <cstdint>

#include "attention/backend.h"

namespace latent::attention::cpu {

inline constexpr int kTaskLanes = 128;
inline constexpr int kChunkTokens = 512;  // 16 heads of 512 + 64 take 20 us on one core of a Zen 5 machine
inline constexpr int kMaxChunks = 16;
inline constexpr int kWholeTask = -1;

struct AbsorbedTask {
  int32_t seq;
  int32_t first_row;   // query row of lane 0
  int32_t first_lane;  // lanes [first_lane, first_lane + num_lanes) from there; lane = row * num_heads + head
  int32_t num_lanes;
  int32_t num_keys;  // of the task's last row
  int32_t chunk_tokens;
  int32_t first_slot;  // place of chunk 0 in the workspace; kWholeTask if one thread does all chunks
  int32_t counter;     // of finished chunks

  int num_chunks() const { return (num_keys + chunk_tokens - 1) / chunk_tokens; }
};

struct AbsorbedUnit {
  int task;
  int chunk;  // kWholeTask: all of them
};

// Tokens a chunk of a row with this many keys.
int chunk_tokens(int num_keys);

// Reads a plan.
class AbsorbedPlan {
 public:
  explicit AbsorbedPlan(const Plan& plan) : words_(plan.words.data()) {}

  int num_tasks() const { return words_[0]; }
  int num_units() const { return words_[1]; }
  int num_slots() const { return words_[2]; }
  int num_counters() const { return words_[3]; }
  AbsorbedTask task(int index) const;
  AbsorbedUnit unit(int index) const;

 private:
  const int32_t* words_;
};

void plan_absorbed(const MlaDesc& desc, const Limits& limits, const SeqLengths& lengths, Plan* plan);

// Bounds of any step within the limits.
int64_t max_absorbed_plan_words(const MlaDesc& desc, const Limits& limits);
int64_t max_absorbed_slots(const Limits& limits);
// Lanes of the largest task, a multiple of 16.
int max_task_lanes(const MlaDesc& desc, const Limits& limits);

}  // namespace latent::attention::cpu
