// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cpu/absorbed.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "attention/backends/cpu/arena.h"
#include "attention/backends/cpu/cache_rows.h"
#include "attention/backends/cpu/output_rows.h"
#include "attention/desc.h"
#include "base/check.h"
#include "base/parallel.h"

namespace latent::attention::cpu {
namespace {

using ops::MlaAttentionAttrs;
using ops::MlaAttentionParams;

int padded_rank(const MlaAttentionAttrs& a) { return round_up(a.kv_rank, 32); }

// Scratch of one thread, and the states of all chunks of split tasks.
struct ThreadScratch {
  std::byte* queries;   // packed, kTaskLanes / kLanes groups of them
  float *total, *part;  // states of the task and of one chunk, one a group
  float* step;
  std::byte* block;  // f32 rows, or the last tile of bf16 ones
  float* row;
};

struct Sizes {
  Sizes(const MlaAttentionAttrs& a, int task_lanes)
      : num_groups(task_lanes / kLanes),
        state_floats(LaneState::num_floats(padded_rank(a))),
        query_bytes(f32_engine().packed_bytes(a.kv_rank, a.rope_dim)),
        block_floats(int64_t{kBlockTokens} * (padded_rank(a) + a.rope_dim)),
        row_floats(padded_rank(a)) {}

  ThreadScratch take_thread(Arena* arena) const {
    ThreadScratch s{};
    s.queries = arena->take<std::byte>(num_groups * query_bytes);
    s.total = arena->take<float>(num_groups * state_floats);
    s.part = arena->take<float>(num_groups * state_floats);
    s.step = arena->take<float>(kStepScratchFloats);
    s.block = reinterpret_cast<std::byte*>(arena->take<float>(block_floats));
    s.row = arena->take<float>(row_floats);
    return s;
  }
  float* take_slots(Arena* arena, int64_t num_slots) const {
    return arena->take<float>(num_slots * num_groups * state_floats);
  }

  int num_groups;
  int64_t state_floats, query_bytes, block_floats, row_floats;
};

bool takes_bf16(const MlaAttentionParams& p) {
  const auto is_bf16 = [](const TensorView& v) { return v.dtype() == DType::kBF16; };
  return bf16_engine() != nullptr && is_bf16(p.q_nope) && is_bf16(p.q_pe) && is_bf16(p.cache) &&
         p.attrs.kv_rank % 32 == 0 && p.attrs.page_tokens % kTileTokens == 0 && p.cache.stride(2) == 1 &&
         p.cache.stride(1) == p.cache.dim(2);
}

const void* query_row(const TensorView& q, int64_t token, int64_t head) {
  const int64_t at = token * q.stride(0) + head * q.stride(1);
  return static_cast<const std::byte*>(q.raw()) + at * static_cast<int64_t>(dtype_bytes(q.dtype()));
}

// One task on one thread.
class TaskWorker {
 public:
  TaskWorker(const MlaAttentionParams& params, const Sizes& sizes, const LaneEngine& engine,
             const AbsorbedTask& task, const ThreadScratch& scratch)
      : p_(params), sizes_(sizes), engine_(engine), task_(task), scratch_(scratch), rows_(params, task.seq) {}

  void pack_queries() const {
    for (int group = 0; group < num_groups(); ++group) {
      LaneQueries q{.nope = {},
                    .rope = {},
                    .nope_dtype = p_.q_nope.dtype(),
                    .rope_dtype = p_.q_pe.dtype(),
                    .nope_stride = p_.q_nope.stride(2),
                    .rope_stride = p_.q_pe.stride(2),
                    .nope_width = p_.attrs.kv_rank,
                    .rope_width = p_.attrs.rope_dim};
      for (int lane = 0; lane < lanes_of(group); ++lane) {
        const RowAddress at = address(group * kLanes + lane);
        q.nope[lane] = query_row(p_.q_nope, at.token, at.head);
        q.rope[lane] = query_row(p_.q_pe, at.token, at.head);
      }
      engine_.pack(q, queries(group));
    }
  }

  // States of chunk `chunk` to `states`, one a group.
  void run_chunk(int chunk, float* states) const {
    const int begin = chunk * task_.chunk_tokens, end = std::min(begin + task_.chunk_tokens, task_.num_keys);
    for (int at = begin; at < end; at += kBlockTokens) {
      const int count = std::min(kBlockTokens, end - at);
      if (engine_.step_bf16 != nullptr)
        step_groups(bf16_block(at, count, end), at, count, at == begin, states);
      else
        step_groups(f32_block(at, count), at, count, at == begin, states);
    }
  }

  void run_all_chunks() const {
    run_chunk(0, scratch_.total);
    for (int chunk = 1; chunk < task_.num_chunks(); ++chunk) {
      run_chunk(chunk, scratch_.part);
      merge(scratch_.total, scratch_.part);
    }
    write(scratch_.total);
  }

  void merge(float* total, float* part) const {
    for (int group = 0; group < num_groups(); ++group) engine_.merge(state(total, group), state(part, group));
  }

  void write(float* states) const {
    for (int lane = 0; lane < task_.num_lanes; ++lane)
      write_lane(p_, engine_, state(states, lane / kLanes), lane % kLanes, address(lane), scratch_.row);
  }

 private:
  int num_groups() const { return ceil_div<int>(task_.num_lanes, kLanes); }
  int lanes_of(int group) const { return std::min(kLanes, task_.num_lanes - group * kLanes); }
  std::byte* queries(int group) const { return scratch_.queries + group * sizes_.query_bytes; }
  LaneState state(float* states, int group) const {
    return {.out = states + group * sizes_.state_floats,
            .width = padded_rank(p_.attrs),
            .num_lanes = lanes_of(group)};
  }
  RowAddress address(int lane) const {
    const int64_t at = task_.first_lane + lane;
    return {.token = task_.first_row + at / p_.attrs.num_heads, .head = at % p_.attrs.num_heads};
  }
  // Keys that a lane sees: those of the task's last row, less the rows between.
  int num_keys(int lane) const {
    const auto last = static_cast<int>(address(task_.num_lanes - 1).token);
    return task_.num_keys - (last - static_cast<int>(address(lane).token));
  }

  template <class Block>
  void step_groups(const Block& block, int at, int count, bool first, float* states) const {
    for (int group = 0; group < num_groups(); ++group) {
      float limits[kLanes] = {};
      bool all = true;
      for (int lane = 0; lane < lanes_of(group); ++lane) {
        const int seen = num_keys(group * kLanes + lane) - at;
        limits[lane] = static_cast<float>(seen);
        all = all && seen >= count;
      }
      const StepArgs args = {.queries = queries(group),
                             .num_tokens = count,
                             .limits = all ? nullptr : limits,
                             .scale = p_.attrs.softmax_scale,
                             .first = first,
                             .state = state(states, group),
                             .scratch = scratch_.step};
      step(args, block);
    }
  }
  void step(const StepArgs& args, const F32Block& block) const { engine_.step_f32(args, block); }
  void step(const StepArgs& args, const Bf16Block& block) const { engine_.step_bf16(args, block); }

  F32Block f32_block(int at, int count) const {
    const MlaAttentionAttrs& a = p_.attrs;
    const int rank = padded_rank(a), width = rank + a.rope_dim, num_rows = round_up(count, kTileTokens);
    auto* rows = reinterpret_cast<float*>(scratch_.block);
    for (int t = 0; t < count; ++t) {
      float* to = rows + int64_t{t} * width;
      rows_.read(engine_, at + t, 0, a.kv_rank, DType::kF32, to);
      std::fill(to + a.kv_rank, to + rank, 0.0f);
      rows_.read(engine_, at + t, a.kv_rank, a.rope_dim, DType::kF32, to + rank);
    }
    std::fill(rows + int64_t{count} * width, rows + int64_t{num_rows} * width, 0.0f);
    return {.nope = rows,
            .rope = rows + rank,
            .value = rows,
            .nope_stride = width,
            .rope_stride = width,
            .value_stride = width,
            .nope_width = a.kv_rank,
            .rope_width = a.rope_dim};
  }

  // Whole tiles are read where they lie. The last tokens of a request are copied into a tile of zeros: what
  // the page holds after them was never written.
  Bf16Block bf16_block(int at, int count, int end) const {
    Bf16Block b{.tile = {}, .stride = p_.cache.stride(1), .width = p_.attrs.kv_rank + p_.attrs.rope_dim};
    for (int tile = 0; tile < kBlockTokens / kTileTokens + 2; ++tile) {
      const int token = at + tile * kTileTokens;
      if (token + kTileTokens <= end)
        b.tile[tile] = reinterpret_cast<const BFloat16*>(rows_.row(token));
      else
        b.tile[tile] = token < at + count ? copy_tail(token, at + count, b.width) : b.tile[tile - 1];
    }
    return b;
  }

  const BFloat16* copy_tail(int begin, int end, int width) const {
    auto* rows = reinterpret_cast<BFloat16*>(scratch_.block);
    for (int token = begin; token < end; ++token)
      rows_.read(engine_, token, 0, width, DType::kBF16, rows + int64_t{token - begin} * width);
    std::memset(rows + int64_t{end - begin} * width, 0,
                static_cast<size_t>((kTileTokens - (end - begin)) * width) * sizeof(BFloat16));
    return rows;
  }

  const MlaAttentionParams& p_;
  const Sizes& sizes_;
  const LaneEngine& engine_;
  const AbsorbedTask& task_;
  const ThreadScratch& scratch_;
  CacheRows rows_;
};

// Everything a run shares between its threads.
struct Run {
  Run(const MlaAttentionParams& params, const AbsorbedPlan& steps, const kernels::KernelContext& context)
      : p(params),
        plan(steps),
        engine(takes_bf16(params) ? *bf16_engine() : f32_engine()),
        sizes(params.attrs, largest_task(steps)) {
    Arena shared(context.workspace.data());
    slots = sizes.take_slots(&shared, plan.num_slots());
    finished_chunks = shared.take<int32_t>(plan.num_counters());
    std::fill_n(finished_chunks, plan.num_counters(), 0);
    threads = context.workspace.subspan(static_cast<size_t>(shared.used()));
    Arena one;
    sizes.take_thread(&one);
    thread_bytes = one.used();
    num_threads = std::min<int64_t>(context.num_threads, static_cast<int64_t>(threads.size()) / thread_bytes);
    CHECK(num_threads > 0, "a workspace of {} bytes is too small for this step", context.workspace.size());
  }

  static int largest_task(const AbsorbedPlan& plan) {
    int lanes = 1;
    for (int i = 0; i < plan.num_tasks(); ++i) lanes = std::max(lanes, plan.task(i).num_lanes);
    return round_up(lanes, kLanes);
  }

  ThreadScratch scratch(int thread) const {
    Arena arena(threads.data() + thread * thread_bytes);
    return sizes.take_thread(&arena);
  }
  float* slot(int index) const { return slots + index * sizes.num_groups * sizes.state_floats; }

  const MlaAttentionParams& p;
  const AbsorbedPlan& plan;
  const LaneEngine& engine;
  Sizes sizes;
  float* slots;
  int32_t* finished_chunks;
  std::span<std::byte> threads;
  int64_t thread_bytes, num_threads;
};

// The thread that finishes a task's last chunk merges them all, in ascending order.
void run_split_chunk(const Run& run, const AbsorbedTask& task, const TaskWorker& worker, int chunk) {
  worker.run_chunk(chunk, run.slot(task.first_slot + chunk));
  const std::atomic_ref<int32_t> finished(run.finished_chunks[task.counter]);
  if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 < task.num_chunks()) return;
  float* total = run.slot(task.first_slot);
  for (int other = 1; other < task.num_chunks(); ++other)
    worker.merge(total, run.slot(task.first_slot + other));
  worker.write(total);
}

void run_unit(const Run& run, const AbsorbedUnit& unit, const ThreadScratch& scratch) {
  const AbsorbedTask task = run.plan.task(unit.task);
  const TaskWorker worker(run.p, run.sizes, run.engine, task, scratch);
  worker.pack_queries();
  if (unit.chunk == kWholeTask)
    worker.run_all_chunks();
  else
    run_split_chunk(run, task, worker, unit.chunk);
}

}  // namespace

size_t absorbed_workspace_bytes(const MlaDesc& desc, const Limits& limits) {
  const Sizes sizes(desc.attrs, max_task_lanes(desc, limits));
  Arena arena;
  sizes.take_slots(&arena, max_absorbed_slots(limits));
  arena.take<int32_t>(max_absorbed_slots(limits));
  for (int thread = 0; thread < limits.num_threads; ++thread) sizes.take_thread(&arena);
  return static_cast<size_t>(arena.used());
}

void run_absorbed(const MlaAttentionParams& params, const Plan& plan, const kernels::KernelContext& context) {
  const AbsorbedPlan steps(plan);
  if (steps.num_units() == 0) return;
  const Run run(params, steps, context);
  std::atomic<int> next{0};
  const int threads = static_cast<int>(std::min<int64_t>(run.num_threads, steps.num_units()));
  parallel_team(threads, [&](int thread, int) {
    const ThreadScratch scratch = run.scratch(thread);
    for (int unit = next++; unit < steps.num_units(); unit = next++) run_unit(run, steps.unit(unit), scratch);
  });
}

}  // namespace latent::attention::cpu
