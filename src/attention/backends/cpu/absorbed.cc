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

// Tiles can be read where they lie: whole tiles in a page, rows without gaps, whole vectors of values.
bool reads_in_place(const MlaAttentionParams& p) {
  return p.attrs.kv_rank % 32 == 0 && p.attrs.page_tokens % kTileTokens == 0 && p.cache.stride(2) == 1 &&
         p.cache.stride(1) == p.cache.dim(2);
}

bool takes_bf16(const MlaAttentionParams& p) {
  const auto is_bf16 = [](const TensorView& v) { return v.dtype() == DType::kBF16; };
  return bf16_engine() != nullptr && is_bf16(p.q_nope) && is_bf16(p.q_pe) && is_bf16(p.cache) &&
         reads_in_place(p);
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
      : p_(params),
        sizes_(sizes),
        engine_(engine),
        task_(task),
        scratch_(scratch),
        rows_(params, task.seq),
        in_place_(reads_in_place(params)) {}

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

  // Asks memory for the tiles that a chunk begins with: no step before it has.
  void ask_for_first_tiles(int chunk) const {
    if (!in_place_) return;
    const int begin = chunk * task_.chunk_tokens;
    const int last = last_tile();
    const int64_t bytes = tile_bytes();
    for (int tile = 0; tile < kTilesAhead; ++tile) {
      const std::byte* rows = rows_.row(std::min(begin + tile * kTileTokens, last));
      for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(rows + at);
    }
  }

  // States of chunk `chunk` to `states`, one a group.
  void run_chunk(int chunk, float* states) const {
    const int begin = chunk * task_.chunk_tokens, end = std::min(begin + task_.chunk_tokens, task_.num_keys);
    for (int at = begin; at < end; at += kBlockTokens) {
      const int count = std::min(kBlockTokens, end - at);
      if (engine_.step_bf16 != nullptr)
        step_groups(bf16_block(at, count, end), at, count, at == begin, states);
      else if (in_place_ && p_.cache.dtype() == DType::kF32)
        step_groups(f32_block(at, count, end), at, count, at == begin, states);
      else
        step_groups(gathered_block(at, count), at, count, at == begin, states);
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
  void step_groups(Block block, int at, int count, bool first, float* states) const {
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
      block.prefetch.tile_bytes = 0;  // the first group has asked for what the others need
    }
  }
  void step(const StepArgs& args, const F32Block& block) const { engine_.step_f32(args, block); }
  void step(const StepArgs& args, const Bf16Block& block) const { engine_.step_bf16(args, block); }

  // Any cache: rows are copied to f32, latents padded with zeros to whole vectors.
  F32Block gathered_block(int at, int count) const {
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
    F32Block b = f32_shape(width);
    for (int tile = 0; tile * kTileTokens < count; ++tile) {
      const float* row = rows + int64_t{tile} * kTileTokens * width;
      b.tile[tile] = {.nope = row, .rope = row + rank, .value = row};
      b.prefetch.tile[tile] = row;
    }
    return b;
  }

  F32Block f32_block(int at, int count, int end) const {
    F32Block b = f32_shape(p_.cache.stride(1));
    for (int tile = 0; tile * kTileTokens < count; ++tile) {
      const auto* row = static_cast<const float*>(tile_at(at + tile * kTileTokens, end));
      b.tile[tile] = {.nope = row, .rope = row + p_.attrs.kv_rank, .value = row};
    }
    b.prefetch = prefetch(at);
    return b;
  }

  Bf16Block bf16_block(int at, int count, int end) const {
    Bf16Block b{.tile = {},
                .stride = p_.cache.stride(1),
                .width = p_.attrs.kv_rank + p_.attrs.rope_dim,
                .prefetch = prefetch(at)};
    for (int tile = 0; tile * kTileTokens < count; ++tile)
      b.tile[tile] = static_cast<const BFloat16*>(tile_at(at + tile * kTileTokens, end));
    return b;
  }

  F32Block f32_shape(int64_t stride) const {
    return {.tile = {},
            .nope_stride = stride,
            .rope_stride = stride,
            .value_stride = stride,
            .nope_width = p_.attrs.kv_rank,
            .rope_width = p_.attrs.rope_dim,
            .prefetch = {}};
  }

  // Whole tiles lie in the cache. The last tokens of a request are copied into a tile of zeros: what the page
  // holds after them was never written.
  const void* tile_at(int token, int end) const {
    if (token + kTileTokens <= end) return rows_.row(token);
    const DType dtype = p_.cache.dtype();
    const int width = p_.attrs.kv_rank + p_.attrs.rope_dim;
    const auto row_bytes = width * static_cast<int64_t>(dtype_bytes(dtype));
    for (int t = token; t < end; ++t)
      rows_.read(engine_, t, 0, width, dtype, scratch_.block + (t - token) * row_bytes);
    std::memset(scratch_.block + (end - token) * row_bytes, 0,
                static_cast<size_t>((kTileTokens - (end - token)) * row_bytes));
    return scratch_.block;
  }

  int64_t tile_bytes() const {
    return kTileTokens * p_.cache.stride(1) * static_cast<int64_t>(dtype_bytes(p_.cache.dtype()));
  }
  int last_tile() const { return (task_.num_keys - 1) / kTileTokens * kTileTokens; }

  // The tiles of the task's keys that come next, whatever chunk they are in; at their end its own last one.
  Prefetch prefetch(int at) const {
    Prefetch ahead{.tile = {}, .tile_bytes = tile_bytes()};
    const int last = last_tile();
    for (int tile = 0; tile < kBlockTiles; ++tile)
      ahead.tile[tile] = rows_.row(std::min(at + (tile + kTilesAhead) * kTileTokens, last));
    return ahead;
  }

  const MlaAttentionParams& p_;
  const Sizes& sizes_;
  const LaneEngine& engine_;
  const AbsorbedTask& task_;
  const ThreadScratch& scratch_;
  CacheRows rows_;
  bool in_place_;
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

// `before` is what this thread did last: of the same task the queries are packed already.
void run_unit(const Run& run, const AbsorbedUnit& unit, const AbsorbedUnit& before,
              const ThreadScratch& scratch) {
  const AbsorbedTask task = run.plan.task(unit.task);
  const TaskWorker worker(run.p, run.sizes, run.engine, task, scratch);
  if (unit.task != before.task) worker.pack_queries();
  if (unit.task != before.task || unit.chunk != before.chunk + 1)
    worker.ask_for_first_tiles(std::max(unit.chunk, 0));
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
    AbsorbedUnit before = {.task = -1, .chunk = 0};
    for (int next_unit = next++; next_unit < steps.num_units(); next_unit = next++) {
      const AbsorbedUnit unit = steps.unit(next_unit);
      run_unit(run, unit, before, scratch);
      before = unit;
    }
  });
}

}  // namespace latent::attention::cpu
