// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cpu/multi_head.h"

#include <algorithm>
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

constexpr int kTile = kBlockTokens;
// Values are read to a multiple of 32 columns, past the last head's too.
constexpr int kColumnSlack = 32;

struct ThreadScratch {
  std::byte* queries;
  float *step, *row;
};

// One request at a time: a tile of its context, projected up, and the running states of all its rows.
struct Workspace {
  Workspace(const MlaAttentionAttrs& a, int64_t max_rows, int num_threads, std::byte* memory) {
    Arena arena(memory);
    num_columns = int64_t{a.num_heads} * (a.nope_dim + a.v_dim);
    // Off a power of two, so that the rows of one head do not share cache sets.
    up_stride = round_up<int64_t>(num_columns, 16) + 16;
    value_width = round_up(a.v_dim, 32);
    state_floats = LaneState::num_floats(value_width);
    num_groups = ceil_div<int64_t>(max_rows, kLanes);
    latents = arena.take<std::byte>(int64_t{kTile} * a.kv_rank * static_cast<int64_t>(sizeof(float)));
    rope = arena.take<float>(int64_t{kTile} * a.rope_dim);
    up = arena.take<float>(kTile * up_stride + kColumnSlack);
    states = arena.take<float>(a.num_heads * num_groups * state_floats);
    const int64_t shared = arena.used();
    take_thread(&arena, a);
    thread_bytes = arena.used() - shared;
    threads = memory == nullptr ? nullptr : memory + shared;
    fixed_bytes = shared + num_threads * thread_bytes;
  }

  ThreadScratch take_thread(Arena* arena, const MlaAttentionAttrs& a) const {
    ThreadScratch s{};
    s.queries = arena->take<std::byte>(f32_engine().packed_bytes(a.nope_dim, a.rope_dim));
    s.step = arena->take<float>(kStepScratchFloats);
    s.row = arena->take<float>(value_width);
    return s;
  }
  ThreadScratch thread(int index, const MlaAttentionAttrs& a) const {
    Arena arena(threads + index * thread_bytes);
    return take_thread(&arena, a);
  }
  LaneState state(int64_t head, int64_t group, int num_lanes) const {
    return {.out = states + (head * num_groups + group) * state_floats,
            .width = value_width,
            .num_lanes = num_lanes};
  }

  int64_t num_columns, up_stride, state_floats, num_groups, thread_bytes, fixed_bytes;
  int value_width;
  std::byte *latents, *threads;
  float *rope, *up, *states;
};

// The projection of one tile; zeros past the last key are projected too.
ops::LinearParams up_projection(const MlaAttentionAttrs& a, DType latent_dtype, const ops::WeightView& kv_b,
                                const Workspace& w) {
  return {.x = {w.latents, latent_dtype, {kTile, a.kv_rank}},
          .weight = kv_b,
          .out = {w.up, DType::kF32, {kTile, w.num_columns}, {w.up_stride, 1}}};
}

DType latent_dtype(DType cache) { return cache == DType::kF16 ? DType::kF32 : cache; }

// The rows of a request that have keys.
struct LiveRows {
  int64_t seq, first, count;
  int64_t first_keys;  // of the first of them; each later one sees one more

  int64_t num_groups() const { return ceil_div<int64_t>(count, kLanes); }
  int lanes_of(int64_t group) const {
    return static_cast<int>(std::min<int64_t>(kLanes, count - group * kLanes));
  }
  int64_t last_keys() const { return first_keys + count - 1; }
};

LiveRows live_rows(const ops::AttentionBatch& batch, int64_t seq) {
  const Range rows = query_rows(batch, seq);
  const int64_t len = kv_len(batch, seq), first = std::max(rows.begin, rows.end - len);
  return {.seq = seq, .first = first, .count = rows.end - first, .first_keys = len - rows.end + first + 1};
}

class RequestWorker {
 public:
  RequestWorker(const MlaAttentionParams& params, const LiveRows& rows, const Workspace& workspace,
                const kernels::KernelContext& context)
      : p_(params),
        a_(params.attrs),
        rows_(rows),
        w_(workspace),
        context_(context),
        cache_(params, rows.seq) {}

  void run() const {
    for (int64_t at = 0; at < rows_.last_keys(); at += kTile) {
      const int count = static_cast<int>(std::min<int64_t>(kTile, rows_.last_keys() - at));
      gather(at, count);
      project_up();
      for_each_group([&](int64_t head, int64_t group, const ThreadScratch& scratch) {
        step(head, group, at, count, scratch);
      });
    }
    for_each_group([&](int64_t head, int64_t group, const ThreadScratch& scratch) {
      for (int lane = 0; lane < rows_.lanes_of(group); ++lane)
        write_lane(p_, engine_, w_.state(head, group, rows_.lanes_of(group)), lane,
                   {token(group, lane), head}, scratch.row);
    });
  }

 private:
  int64_t token(int64_t group, int lane) const { return rows_.first + group * kLanes + lane; }

  // A head's groups of rows follow each other, so that its keys stay in the cache of its thread.
  template <class Body>
  void for_each_group(Body&& body) const {
    const int64_t groups = rows_.num_groups();
    parallel_team(context_.num_threads, [&](int thread, int threads) {
      const ThreadScratch scratch = w_.thread(thread, a_);
      const Range range = split_range(a_.num_heads * groups, thread, threads);
      for (int64_t i = range.begin; i < range.end; ++i) body(i / groups, i % groups, scratch);
    });
  }

  void gather(int64_t at, int count) const {
    const DType dtype = latent_dtype(p_.cache.dtype());
    const auto row_bytes = a_.kv_rank * static_cast<int64_t>(dtype_bytes(dtype));
    parallel_ranges(context_.num_threads, kTile, 16, [&](Range range) {
      for (int64_t t = range.begin; t < range.end; ++t) {
        std::byte* latent = w_.latents + t * row_bytes;
        float* rope = w_.rope + t * a_.rope_dim;
        if (t < count) {
          cache_.read(engine_, at + t, 0, a_.kv_rank, dtype, latent);
          cache_.read(engine_, at + t, a_.kv_rank, a_.rope_dim, DType::kF32, rope);
        } else {
          std::memset(latent, 0, static_cast<size_t>(row_bytes));
          std::fill_n(rope, a_.rope_dim, 0.0f);
        }
      }
    });
  }

  void project_up() const {
    const ops::LinearParams linear = up_projection(a_, latent_dtype(p_.cache.dtype()), p_.kv_b, w_);
    kernels::KernelContext context = context_;
    context.workspace = context_.workspace.subspan(static_cast<size_t>(w_.fixed_bytes));
    kernels::select(linear).run(linear, context);
  }

  void pack_queries(int64_t head, int64_t group, std::byte* packed) const {
    const auto row = [&](const TensorView& q, int lane) -> const void* {
      const int64_t at = token(group, lane) * q.stride(0) + head * q.stride(1);
      return static_cast<const std::byte*>(q.raw()) + at * static_cast<int64_t>(dtype_bytes(q.dtype()));
    };
    LaneQueries q{.nope = {},
                  .rope = {},
                  .nope_dtype = p_.q_nope.dtype(),
                  .rope_dtype = p_.q_pe.dtype(),
                  .nope_stride = p_.q_nope.stride(2),
                  .rope_stride = p_.q_pe.stride(2),
                  .nope_width = a_.nope_dim,
                  .rope_width = a_.rope_dim};
    for (int lane = 0; lane < rows_.lanes_of(group); ++lane) {
      q.nope[lane] = row(p_.q_nope, lane);
      q.rope[lane] = row(p_.q_pe, lane);
    }
    engine_.pack(q, packed);
  }

  // Tiles past a group's last position are skipped.
  void step(int64_t head, int64_t group, int64_t at, int count, const ThreadScratch& scratch) const {
    const int num_lanes = rows_.lanes_of(group);
    const int64_t first_seen = rows_.first_keys + group * kLanes - at;  // by lane 0, of this tile
    const auto num_tokens = static_cast<int>(std::min<int64_t>(count, first_seen + num_lanes - 1));
    if (num_tokens <= 0) return;
    float limits[kLanes] = {};
    for (int lane = 0; lane < num_lanes; ++lane) limits[lane] = static_cast<float>(first_seen + lane);
    pack_queries(head, group, scratch.queries);
    const float* keys = w_.up + head * (a_.nope_dim + a_.v_dim);
    engine_.step_f32({.queries = scratch.queries,
                      .num_tokens = num_tokens,
                      .limits = first_seen >= num_tokens ? nullptr : limits,
                      .scale = a_.softmax_scale,
                      .first = at == 0,
                      .state = w_.state(head, group, num_lanes),
                      .scratch = scratch.step},
                     {.nope = keys,
                      .rope = w_.rope,
                      .value = keys + a_.nope_dim,
                      .nope_stride = w_.up_stride,
                      .rope_stride = a_.rope_dim,
                      .value_stride = w_.up_stride,
                      .nope_width = a_.nope_dim,
                      .rope_width = a_.rope_dim});
  }

  const MlaAttentionParams& p_;
  const MlaAttentionAttrs& a_;
  const LiveRows& rows_;
  const Workspace& w_;
  const kernels::KernelContext& context_;
  const LaneEngine& engine_ = f32_engine();
  CacheRows cache_;
};

// The most that any implementation of the projection asks for: which of them will serve is known only with
// the weight in hand.
size_t projection_bytes(const MlaDesc& desc, const Limits& limits, const Workspace& w) {
  const MlaAttentionAttrs& a = desc.attrs;
  static std::byte somewhere[64];  // only shapes are looked at
  ops::WeightView kv_b{.values = {somewhere, desc.kv_b_dtype, {w.num_columns, a.kv_rank}}, .scales = {}};
  if (desc.kv_b_dtype == DType::kF8E4M3) {
    kv_b.block_rows = kv_b.block_cols = 128;
    kv_b.scales = {somewhere, DType::kF32, {ceil_div<int64_t>(w.num_columns, 128), ceil_div(a.kv_rank, 128)}};
  }
  const ops::LinearParams linear = up_projection(a, latent_dtype(desc.cache_dtype), kv_b, w);
  size_t most = 0;
  for (const auto& implementation : kernels::implementations<ops::LinearParams>())
    if (implementation.workspace_bytes != nullptr)
      most = std::max(most, implementation.workspace_bytes(linear, limits.num_threads));
  return most;
}

int64_t longest_request(const ops::AttentionBatch& batch) {
  int64_t rows = 0;
  for (int64_t seq = 0; seq < num_seqs(batch); ++seq) rows = std::max(rows, query_rows(batch, seq).size());
  return rows;
}

}  // namespace

size_t multi_head_workspace_bytes(const MlaDesc& desc, const Limits& limits) {
  const Workspace w(desc.attrs, limits.max_tokens, limits.num_threads, nullptr);
  return static_cast<size_t>(w.fixed_bytes) + projection_bytes(desc, limits, w);
}

void run_multi_head(const MlaAttentionParams& params, const kernels::KernelContext& context) {
  const Workspace w(params.attrs, longest_request(params.batch), context.num_threads,
                    context.workspace.data());
  CHECK(static_cast<size_t>(w.fixed_bytes) <= context.workspace.size(),
        "a step needs {} bytes of workspace and got {}", w.fixed_bytes, context.workspace.size());
  for (int64_t seq = 0; seq < num_seqs(params.batch); ++seq) {
    const LiveRows rows = live_rows(params.batch, seq);
    if (rows.count > 0) RequestWorker(params, rows, w, context).run();
  }
}

}  // namespace latent::attention::cpu
