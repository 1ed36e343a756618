// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cpu/multi_head.h"

#include <algorithm>
#include <cstring>
#include <numeric>

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

// Heads that are projected together: one, unless the scale blocks of a quantised kv_b span several.
int heads_at_once(const MlaAttentionAttrs& a, int block_rows) {
  if (block_rows == 0) return 1;
  return std::min(a.num_heads, block_rows / std::gcd(block_rows, a.nope_dim + a.v_dim));
}

struct ThreadScratch {
  std::byte* queries;
  float *step, *row;
  float* up;  // keys and values of a tile, [kTile, up_stride]
  std::byte* linear;
};

// One request at a time: a tile of its context, and the running states of all its rows.
struct Workspace {
  struct Sizes {
    int64_t max_rows;
    int num_heads_at_once;
    int64_t linear_bytes;  // scratch of one projection on one thread
  };

  Workspace(const MlaAttentionAttrs& a, const Sizes& s, std::byte* memory) : sizes(s) {
    Arena arena(memory);
    // Off a power of two, so that the rows do not share cache sets.
    up_stride = round_up<int64_t>(int64_t{s.num_heads_at_once} * (a.nope_dim + a.v_dim), 16) + 16;
    value_width = round_up(a.v_dim, 32);
    state_floats = LaneState::num_floats(value_width);
    num_groups = ceil_div<int64_t>(s.max_rows, kLanes);
    latents = arena.take<std::byte>(int64_t{kTile} * a.kv_rank * static_cast<int64_t>(sizeof(float)));
    rope = arena.take<float>(int64_t{kTile} * a.rope_dim);
    states = arena.take<float>(a.num_heads * num_groups * state_floats);
    shared_bytes = arena.used();
    take_thread(&arena, a);
    thread_bytes = arena.used() - shared_bytes;
    threads = memory == nullptr ? nullptr : memory + shared_bytes;
  }

  ThreadScratch take_thread(Arena* arena, const MlaAttentionAttrs& a) const {
    ThreadScratch s{};
    s.queries = arena->take<std::byte>(f32_engine().packed_bytes(a.nope_dim, a.rope_dim));
    s.step = arena->take<float>(kStepScratchFloats);
    s.row = arena->take<float>(value_width);
    s.up = arena->take<float>(kTile * up_stride + kColumnSlack);
    s.linear = arena->take<std::byte>(sizes.linear_bytes);
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

  Sizes sizes;
  int64_t up_stride, state_floats, num_groups, shared_bytes, thread_bytes;
  int value_width;
  std::byte *latents, *threads;
  float *rope, *states;
};

// The weight rows of heads [first, first + count).
ops::WeightView heads_of(const ops::WeightView& kv_b, int64_t rows_per_head, int64_t first, int64_t count) {
  ops::WeightView part = kv_b;
  part.values = kv_b.values.slice(0, first * rows_per_head, (first + count) * rows_per_head);
  if (!kv_b.scales.empty())
    part.scales = kv_b.scales.slice(0, first * rows_per_head / kv_b.block_rows,
                                    ceil_div<int64_t>((first + count) * rows_per_head, kv_b.block_rows));
  return part;
}

// The projection of one tile; zeros past the last key are projected too.
ops::LinearParams up_projection(const MlaAttentionAttrs& a, DType latent_dtype, const ops::WeightView& weight,
                                std::byte* latents, float* up, int64_t up_stride) {
  return {.x = {latents, latent_dtype, {kTile, a.kv_rank}},
          .weight = weight,
          .out = {up, DType::kF32, {kTile, weight.rows()}, {up_stride, 1}}};
}

DType latent_dtype(DType cache) { return cache == DType::kBF16 ? DType::kBF16 : DType::kF32; }

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
      for_each_part([&](Range heads, const ThreadScratch& scratch) {
        project_up(heads, scratch);
        for (int64_t head = heads.begin; head < heads.end; ++head)
          for (int64_t group = 0; group < rows_.num_groups(); ++group)
            step({.head = head, .group = group, .at = at, .count = count}, head - heads.begin, scratch);
      });
    }
    for_each_part([&](Range heads, const ThreadScratch& scratch) {
      for (int64_t head = heads.begin; head < heads.end; ++head)
        for (int64_t group = 0; group < rows_.num_groups(); ++group) write(head, group, scratch);
    });
  }

 private:
  int64_t token(int64_t group, int lane) const { return rows_.first + group * kLanes + lane; }

  // Each thread has the same heads in every tile.
  template <class Body>
  void for_each_part(Body&& body) const {
    const int64_t at_once = w_.sizes.num_heads_at_once;
    parallel_team(context_.num_threads, [&](int thread, int threads) {
      const ThreadScratch scratch = w_.thread(thread, a_);
      const Range parts = split_range(ceil_div<int64_t>(a_.num_heads, at_once), thread, threads);
      for (int64_t part = parts.begin; part < parts.end; ++part)
        body(Range{part * at_once, std::min<int64_t>((part + 1) * at_once, a_.num_heads)}, scratch);
    });
  }

  void write(int64_t head, int64_t group, const ThreadScratch& scratch) const {
    const int num_lanes = rows_.lanes_of(group);
    for (int lane = 0; lane < num_lanes; ++lane)
      write_lane(p_, engine_, w_.state(head, group, num_lanes), lane, {token(group, lane), head},
                 scratch.row);
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

  void project_up(Range heads, const ThreadScratch& scratch) const {
    const ops::LinearParams linear =
        up_projection(a_, latent_dtype(p_.cache.dtype()),
                      heads_of(p_.kv_b, a_.nope_dim + a_.v_dim, heads.begin, heads.size()), w_.latents,
                      scratch.up, w_.up_stride);
    kernels::select(linear).run(linear,
                                {.num_threads = 1,
                                 .deterministic = context_.deterministic,
                                 .workspace = {scratch.linear, static_cast<size_t>(w_.sizes.linear_bytes)}});
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

  struct StepPlace {
    int64_t head, group;
    int64_t at;  // first key of the tile
    int count;   // its keys
  };

  // Tiles past a group's last position are skipped. `part` is the head's place among those projected
  // together.
  void step(const StepPlace& s, int64_t part, const ThreadScratch& scratch) const {
    const int num_lanes = rows_.lanes_of(s.group);
    const int64_t first_seen = rows_.first_keys + s.group * kLanes - s.at;  // by lane 0, of this tile
    const auto num_tokens = static_cast<int>(std::min<int64_t>(s.count, first_seen + num_lanes - 1));
    if (num_tokens <= 0) return;
    float limits[kLanes] = {};
    for (int lane = 0; lane < num_lanes; ++lane) limits[lane] = static_cast<float>(first_seen + lane);
    pack_queries(s.head, s.group, scratch.queries);
    engine_.step_f32({.queries = scratch.queries,
                      .num_tokens = num_tokens,
                      .limits = first_seen >= num_tokens ? nullptr : limits,
                      .scale = a_.softmax_scale,
                      .first = s.at == 0,
                      .state = w_.state(s.head, s.group, num_lanes),
                      .scratch = scratch.step},
                     block(scratch.up + part * (a_.nope_dim + a_.v_dim)));
  }

  F32Block block(const float* up) const {
    F32Block b{.tile = {},
               .nope_stride = w_.up_stride,
               .rope_stride = a_.rope_dim,
               .value_stride = w_.up_stride,
               .nope_width = a_.nope_dim,
               .rope_width = a_.rope_dim,
               .prefetch = {}};
    for (int64_t tile = 0; tile < kBlockTiles; ++tile) {
      const float* row = up + tile * kTileTokens * w_.up_stride;
      b.tile[tile] = {
          .nope = row, .rope = w_.rope + tile * kTileTokens * a_.rope_dim, .value = row + a_.nope_dim};
      b.prefetch.tile[tile] = row;
    }
    return b;
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
size_t projection_bytes(const MlaAttentionAttrs& a, DType cache_dtype, const ops::WeightView& weight,
                        int64_t up_stride) {
  static std::byte somewhere[64];  // only shapes are looked at
  const ops::LinearParams linear = up_projection(a, latent_dtype(cache_dtype), weight, somewhere,
                                                 reinterpret_cast<float*>(somewhere), up_stride);
  size_t most = 0;
  for (const auto& implementation : kernels::implementations<ops::LinearParams>())
    if (implementation.workspace_bytes != nullptr)
      most = std::max(most, implementation.workspace_bytes(linear, 1));
  return most;
}

int64_t longest_request(const ops::AttentionBatch& batch) {
  int64_t rows = 0;
  for (int64_t seq = 0; seq < num_seqs(batch); ++seq) rows = std::max(rows, query_rows(batch, seq).size());
  return rows;
}

}  // namespace

size_t multi_head_workspace_bytes(const MlaDesc& desc, const Limits& limits) {
  const MlaAttentionAttrs& a = desc.attrs;
  static std::byte somewhere[64];
  // Scale blocks of up to 256 rows; run() says so if a weight has larger ones.
  const bool quantised = desc.kv_b_dtype == DType::kF8E4M3;
  const int at_once = std::max(heads_at_once(a, quantised ? 128 : 0), heads_at_once(a, quantised ? 256 : 0));
  ops::WeightView weight{
      .values = {somewhere, desc.kv_b_dtype, {int64_t{at_once} * (a.nope_dim + a.v_dim), a.kv_rank}},
      .scales = {}};
  if (quantised) {
    weight.block_rows = weight.block_cols = 128;
    weight.scales = {
        somewhere, DType::kF32, {ceil_div<int64_t>(weight.rows(), 128), ceil_div(a.kv_rank, 128)}};
  }
  const int64_t up_stride = weight.rows() + 16;
  const auto linear_bytes = static_cast<int64_t>(projection_bytes(a, desc.cache_dtype, weight, up_stride));
  const Workspace w(a, {limits.max_tokens, at_once, linear_bytes}, nullptr);
  return static_cast<size_t>(w.shared_bytes + limits.num_threads * w.thread_bytes);
}

void run_multi_head(const MlaAttentionParams& params, const kernels::KernelContext& context) {
  const MlaAttentionAttrs& a = params.attrs;
  const int at_once = heads_at_once(a, params.kv_b.scales.empty() ? 0 : params.kv_b.block_rows);
  const ops::WeightView part = heads_of(params.kv_b, a.nope_dim + a.v_dim, 0, at_once);
  const auto linear_bytes =
      static_cast<int64_t>(projection_bytes(a, params.cache.dtype(), part, part.rows() + 16));
  const Workspace w(a, {longest_request(params.batch), at_once, linear_bytes}, context.workspace.data());
  const auto needed = static_cast<size_t>(w.shared_bytes + context.num_threads * w.thread_bytes);
  CHECK(needed <= context.workspace.size(), "a step needs {} bytes of workspace and got {}", needed,
        context.workspace.size());
  for (int64_t seq = 0; seq < num_seqs(params.batch); ++seq) {
    const LiveRows rows = live_rows(params.batch, seq);
    if (rows.count > 0) RequestWorker(params, rows, w, context).run();
  }
}

}  // namespace latent::attention::cpu
