// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/matrix.h"

namespace latent::kernels::cpu {
namespace {

// Scratch of one thread, with its products.
struct Worker {
  ThreadBuffers buffers;
  float* y;

  static Worker take(Arena& arena, const MatmulKernels& k, int64_t num_tokens, int64_t cols) {
    return {.buffers = ThreadBuffers::take(arena, k, cols),
            .y = arena.take<float>(most_padded_tokens(k, num_tokens) * kRowStride)};
  }
};

std::byte* take_packed(Arena& arena, const MatmulKernels& k, int64_t num_tokens, int64_t cols) {
  return arena.take<std::byte>(most_padded_tokens(k, num_tokens) * padded_cols(k, cols) * k.x_bytes);
}

// out[:, rows] = x . w[rows], a block of rows at a time.
void multiply_range(const MatmulKernels& k, const WeightRows& w, Range rows, const PackedTokens& x,
                    const Worker& worker, const TensorView& out) {
  for (int64_t n = rows.begin; n < rows.end; n += kRowBlock) {
    const Range block{n, std::min(n + kRowBlock, rows.end)};
    multiply(k, w, block, x, worker.buffers, worker.y, kRowStride);
    store_block(k, worker.y, kRowStride, out, n, block.size());
  }
}

// Rows that a thread takes at a time: a block, less of a small matrix, so that threads end together.
int64_t rows_at_once(const MatmulKernels& k, int64_t rows, int num_threads) {
  constexpr int64_t kTurns = 8;
  return std::min(round_up<int64_t>(ceil_div(rows, num_threads * kTurns), k.tile_rows), kRowBlock);
}

// Packs all of x; few tokens are not worth waking the team.
void pack_all(const MatmulKernels& k, const TensorView& x, void* packed, int num_threads) {
  const PackJob whole = pack_job(k, x, packed);
  parallel_ranges(num_threads, whole.last_group, 8, [&](Range groups) {
    PackJob part = whole;
    part.first_group = groups.begin;
    part.last_group = groups.end;
    k.pack(part);
  });
}

}  // namespace

size_t linear_workspace(Isa isa, const ops::LinearParams& p, int num_threads) {
  const MatmulKernels& k = kernels_for(isa, p.weight);
  const int64_t tokens = std::min(p.x.dim(0), kTokenBlock);
  Arena arena;
  take_packed(arena, k, tokens, p.weight.cols());
  for (int i = 0; i < num_threads; ++i) Worker::take(arena, k, tokens, p.weight.cols());
  return arena.used();
}

void linear(Isa isa, const ops::LinearParams& p, const KernelContext& context) {
  const MatmulKernels& k = kernels_for(isa, p.weight);
  const WeightRows w = weight_rows(p.weight);
  for (int64_t t = 0; t < p.x.dim(0); t += kTokenBlock) {
    const int64_t end = std::min(t + kTokenBlock, p.x.dim(0));
    const TensorView x = p.x.slice(0, t, end), out = p.out.slice(0, t, end);
    Arena arena(context.workspace);
    std::byte* packed = take_packed(arena, k, end - t, w.cols);
    const int team = team_size(context.num_threads, (end - t) * w.rows * w.cols);
    pack_all(k, x, packed, team);
    const PackedTokens tokens = packed_tokens(k, packed, end - t, w.cols);
    SharedRanges blocks(w.rows, team, rows_at_once(k, w.rows, team));
    parallel_team(team, [&](int thread, int) {
      Arena own = arena;
      Worker worker{};
      for (int i = 0; i <= thread; ++i) worker = Worker::take(own, k, end - t, w.cols);
      blocks.for_each(thread, [&](Range rows) { multiply_range(k, w, rows, tokens, worker, out); });
    });
  }
}

size_t head_linear_workspace(Isa isa, const ops::HeadLinearParams& p, int num_threads) {
  const MatmulKernels& k = kernels_for(isa, p.weight);
  const int64_t tokens = std::min(p.x.dim(0), kTokenBlock);
  Arena arena;
  for (int i = 0; i < num_threads; ++i) {
    take_packed(arena, k, tokens, p.weight.cols());
    Worker::take(arena, k, tokens, p.weight.cols());
  }
  return arena.used();
}

namespace {

// Rows [rows) of all heads laid end to end, for the tokens of x.
void multiply_heads(const MatmulKernels& k, const ops::HeadLinearParams& p, const TensorView& x,
                    const TensorView& out, Range rows, std::byte* packed, const Worker& worker) {
  const int64_t per_head = p.weight.rows();
  for (int64_t n = rows.begin; n < rows.end;) {
    const int64_t head = n / per_head;
    const Range part{n - head * per_head, std::min(rows.end - head * per_head, per_head)};
    k.pack(pack_job(k, x.at(head), packed));
    multiply_range(k, weight_rows(p.weight.at(head)), part,
                   packed_tokens(k, packed, x.dim(1), p.weight.cols()), worker, out.at(head));
    n += part.size();
  }
}

}  // namespace

void head_linear(Isa isa, const ops::HeadLinearParams& p, const KernelContext& context) {
  const MatmulKernels& k = kernels_for(isa, p.weight);
  const int64_t cols = p.weight.cols(), rows = p.weight.values.dim(0) * p.weight.rows();
  for (int64_t t = 0; t < p.x.dim(0); t += kTokenBlock) {
    const int64_t end = std::min(t + kTokenBlock, p.x.dim(0));
    const TensorView x = p.x.slice(0, t, end).transpose(0, 1), out = p.out.slice(0, t, end).transpose(0, 1);
    parallel_team(team_size(context.num_threads, (end - t) * rows * cols), [&](int thread, int threads) {
      Arena own(context.workspace);
      std::byte* packed = nullptr;
      Worker worker{};
      for (int i = 0; i <= thread; ++i) {
        packed = take_packed(own, k, end - t, cols);
        worker = Worker::take(own, k, end - t, cols);
      }
      multiply_heads(k, p, x, out, split_range(rows, thread, threads, k.tile_rows), packed, worker);
    });
  }
}

}  // namespace latent::kernels::cpu
