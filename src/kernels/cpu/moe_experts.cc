// SPDX-License-Identifier: Apache-2.0
// Tokens are grouped by expert, so that each expert's weights are read once a block of tokens. Three passes
// with the whole team each: pack the tokens of every expert; gate, up and silu * mul into the packed inner
// activations; down, and the weighted sum over a token's experts. A thread owns a range of weight rows, of
// every expert alike.
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/matrix.h"

namespace latent::kernels::cpu {
namespace {

// Where the tokens of each expert lie in packed memory.
struct Grouping {
  int64_t num_experts;
  int64_t num_tokens;
  int64_t top_k;
  int32_t* count;     // [num_experts] tokens of an expert
  int32_t* first;     // [num_experts] its first packed row
  int32_t* token_of;  // [packed rows]
  int32_t* row_of;    // [num_tokens * top_k] packed row of a choice; -1: an expert of another rank
  int64_t num_rows;   // packed rows
};

// The most packed rows that any routing of so many tokens needs: every expert in use may pad its last group.
int64_t most_rows(const MatmulKernels& k, const ops::MoeExpertsParams& p, int64_t num_tokens) {
  const int64_t choices = num_tokens * p.ids.dim(1);
  return choices + std::min(choices, p.gate.values.dim(0)) * (k.tile_tokens - 1);
}

struct Memory {
  Grouping grouping;
  std::byte* x;      // packed tokens
  std::byte* inner;  // packed silu(gate) * up

  static Memory take(Arena& arena, const MatmulKernels& k, const ops::MoeExpertsParams& p,
                     int64_t num_tokens) {
    const int64_t rows = most_rows(k, p, num_tokens), experts = p.gate.values.dim(0);
    Memory m{};
    m.grouping = {.num_experts = experts,
                  .num_tokens = num_tokens,
                  .top_k = p.ids.dim(1),
                  .count = arena.take<int32_t>(experts),
                  .first = arena.take<int32_t>(experts),
                  .token_of = arena.take<int32_t>(rows),
                  .row_of = arena.take<int32_t>(num_tokens * p.ids.dim(1)),
                  .num_rows = 0};
    m.x = arena.take<std::byte>(rows * padded_cols(k, p.gate.cols()) * k.x_bytes);
    m.inner = arena.take<std::byte>(rows * padded_cols(k, p.down.cols()) * k.x_bytes);
    return m;
  }
};

struct Worker {
  ThreadBuffers buffers;
  float* gate;  // [padded tokens][kRowStride]
  float* up;
  float* y;    // [packed rows][kRowStride]
  float* sum;  // [kRowBlock]

  static Worker take(Arena& arena, const MatmulKernels& k, const ops::MoeExpertsParams& p,
                     int64_t num_tokens) {
    const int64_t tokens = most_padded_tokens(k, num_tokens);
    return {.buffers = ThreadBuffers::take(arena, k, std::max(p.gate.cols(), p.down.cols())),
            .gate = arena.take<float>(tokens * kRowStride),
            .up = arena.take<float>(tokens * kRowStride),
            .y = arena.take<float>(most_rows(k, p, num_tokens) * kRowStride),
            .sum = arena.take<float>(kRowBlock)};
  }
  static Worker of_thread(Arena arena, const MatmulKernels& k, const ops::MoeExpertsParams& p,
                          int64_t num_tokens, int thread) {
    for (int i = 0; i < thread; ++i) take(arena, k, p, num_tokens);
    return take(arena, k, p, num_tokens);
  }
};

// Counting sort by expert; a token's choices keep the order of the tokens.
void group_tokens(const MatmulKernels& k, const ops::MoeExpertsParams& p, const TensorView& ids,
                  Grouping& g) {
  std::fill_n(g.count, g.num_experts, 0);
  const auto expert_of = [&](int64_t t, int64_t j) {
    const int64_t e = int64_t{ids.row<int32_t>(t)[j * ids.stride(1)]} - p.attrs.first_expert;
    return e >= 0 && e < g.num_experts ? e : -1;
  };
  for (int64_t t = 0; t < g.num_tokens; ++t)
    for (int64_t j = 0; j < g.top_k; ++j)
      if (const int64_t e = expert_of(t, j); e >= 0) ++g.count[e];
  g.num_rows = 0;
  for (int64_t e = 0; e < g.num_experts; ++e) {
    g.first[e] = static_cast<int32_t>(g.num_rows);
    g.num_rows += padded_tokens(k, g.count[e]);
    g.count[e] = 0;
  }
  for (int64_t t = 0; t < g.num_tokens; ++t)
    for (int64_t j = 0; j < g.top_k; ++j) {
      const int64_t e = expert_of(t, j);
      const int32_t row = e < 0 ? -1 : g.first[e] + g.count[e]++;
      g.row_of[t * g.top_k + j] = row;
      if (row >= 0) g.token_of[row] = static_cast<int32_t>(t);
    }
}

// One block of tokens of one call.
struct Block {
  const MatmulKernels& k;
  const ops::MoeExpertsParams& p;
  TensorView x, weights, out;
  Memory memory;

  std::byte* packed(std::byte* base, int64_t expert, int64_t cols) const {
    return base + memory.grouping.first[expert] * padded_cols(k, cols) * k.x_bytes;
  }
};

// This thread's share of the groups of every expert.
void pack_tokens(const Block& b, int thread, int threads) {
  const Grouping& g = b.memory.grouping;
  const int64_t cols = b.p.gate.cols();
  for (int64_t e = 0; e < g.num_experts; ++e) {
    if (g.count[e] == 0) continue;
    PackJob job = pack_job(b.k, b.x, b.packed(b.memory.x, e, cols));
    job.rows = g.token_of + g.first[e];
    job.num_tokens = g.count[e];
    job.group = group_of(b.k, g.count[e]);
    const Range groups = split_range(ceil_div<int64_t>(g.count[e], job.group), thread, threads);
    job.first_group = groups.begin;
    job.last_group = groups.end;
    b.k.pack(job);
  }
}

// Columns [inter) of the inner activations of one expert, at most kRowBlock of them.
void inner_block(const Block& b, int64_t expert, Range inter, const PackedTokens& x, const Worker& worker) {
  multiply(b.k, weight_rows(b.p.gate.at(expert)), inter, x, worker.buffers, worker.gate, kRowStride);
  multiply(b.k, weight_rows(b.p.up.at(expert)), inter, x, worker.buffers, worker.up, kRowStride);
  for (int64_t t = 0; t < x.num_tokens; ++t)
    b.k.silu_mul(worker.gate + t * kRowStride, worker.up + t * kRowStride, worker.gate + t * kRowStride,
                 inter.size());
  const TensorView view(worker.gate, DType::kF32, {x.num_tokens, inter.size()}, {kRowStride, 1});
  PackJob job = pack_job(b.k, view, b.packed(b.memory.inner, expert, b.p.down.cols()));
  job.first_col = inter.begin;
  job.num_chunks = padded_cols(b.k, b.p.down.cols()) / b.k.chunk;
  b.k.pack(job);
}

void gate_and_up(const Block& b, int thread, int threads, const Worker& worker) {
  const Grouping& g = b.memory.grouping;
  const Range inter = split_range(b.p.gate.rows(), thread, threads, kRowBlock);
  for (int64_t e = 0; e < g.num_experts; ++e) {
    if (g.count[e] == 0) continue;
    const int64_t cols = b.p.gate.cols();
    const PackedTokens x = packed_tokens(b.k, b.packed(b.memory.x, e, cols), g.count[e], cols);
    for (int64_t i = inter.begin; i < inter.end; i += kRowBlock)
      inner_block(b, e, {i, std::min(i + kRowBlock, inter.end)}, x, worker);
  }
}

// out[t, hidden) = sum_j weights[t, j] * y[row of (t, j)], j ascending.
void combine(const Block& b, Range hidden, const Worker& worker) {
  const Grouping& g = b.memory.grouping;
  for (int64_t t = 0; t < g.num_tokens; ++t) {
    std::fill_n(worker.sum, hidden.size(), 0.0f);
    for (int64_t j = 0; j < g.top_k; ++j) {
      const int64_t row = g.row_of[t * g.top_k + j];
      if (row < 0) continue;
      const float weight = b.weights.row<float>(t)[j * b.weights.stride(1)];
      const float* y = worker.y + row * kRowStride;
      for (int64_t n = 0; n < hidden.size(); ++n) worker.sum[n] += weight * y[n];
    }
    store_block(b.k, worker.sum, kRowStride, b.out.slice(0, t, t + 1), hidden.begin, hidden.size());
  }
}

void down_and_combine(const Block& b, int thread, int threads, const Worker& worker) {
  const Grouping& g = b.memory.grouping;
  const int64_t cols = b.p.down.cols();
  const Range all = split_range(b.p.down.rows(), thread, threads, kRowBlock);
  for (int64_t n = all.begin; n < all.end; n += kRowBlock) {
    const Range hidden{n, std::min(n + kRowBlock, all.end)};
    for (int64_t e = 0; e < g.num_experts; ++e) {
      if (g.count[e] == 0) continue;
      const PackedTokens inner = packed_tokens(b.k, b.packed(b.memory.inner, e, cols), g.count[e], cols);
      multiply(b.k, weight_rows(b.p.down.at(e)), hidden, inner, worker.buffers,
               worker.y + g.first[e] * kRowStride, kRowStride);
    }
    combine(b, hidden, worker);
  }
}

void run_block(const Block& b, const KernelContext& context, Arena arena) {
  const int64_t tokens = b.memory.grouping.num_tokens;
  const int team =
      team_size(context.num_threads, b.memory.grouping.num_rows * b.p.gate.rows() * b.p.gate.cols());
  // The last thread packs a lone group of each expert; few rows are not worth waking the team.
  const int packers = b.memory.grouping.num_rows <= 64 ? 1 : team;
  parallel_team(packers, [&](int thread, int threads) { pack_tokens(b, thread, threads); });
  parallel_team(team, [&](int thread, int threads) {
    gate_and_up(b, thread, threads, Worker::of_thread(arena, b.k, b.p, tokens, thread));
  });
  parallel_team(team, [&](int thread, int threads) {
    down_and_combine(b, thread, threads, Worker::of_thread(arena, b.k, b.p, tokens, thread));
  });
}

}  // namespace

const char* refuse_moe_experts(Isa isa, const ops::MoeExpertsParams& p, const CpuFeatures& features) {
  for (const ops::WeightView* w : {&p.gate, &p.up, &p.down})
    if (const char* reason = refuse(isa, features, *w, p.x, p.out)) return reason;
  return nullptr;
}

size_t moe_experts_workspace(Isa isa, const ops::MoeExpertsParams& p, int num_threads) {
  const MatmulKernels& k = kernels_for(isa, p.gate);
  const int64_t tokens = std::min(p.x.dim(0), kTokenBlock);
  Arena arena;
  Memory::take(arena, k, p, tokens);
  for (int i = 0; i < num_threads; ++i) Worker::take(arena, k, p, tokens);
  return arena.used();
}

void moe_experts(Isa isa, const ops::MoeExpertsParams& p, const KernelContext& context) {
  const MatmulKernels& k = kernels_for(isa, p.gate);
  for (int64_t t = 0; t < p.x.dim(0); t += kTokenBlock) {
    const int64_t end = std::min(t + kTokenBlock, p.x.dim(0));
    Arena arena(context.workspace);
    Block block{.k = k,
                .p = p,
                .x = p.x.slice(0, t, end),
                .weights = p.weights.slice(0, t, end),
                .out = p.out.slice(0, t, end),
                .memory = Memory::take(arena, k, p, end - t)};
    group_tokens(k, p, p.ids.slice(0, t, end), block.memory.grouping);
    run_block(block, context, arena);
  }
}

}  // namespace latent::kernels::cpu
