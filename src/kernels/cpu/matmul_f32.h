// SPDX-License-Identifier: Apache-2.0
// The matrix kernels of f32 products, written once over an Isa: sixteen lanes and a handful of verbs.
// Included only by the files built for one instruction set.
#pragma once

#include "kernels/cpu/exp.h"
#include "kernels/cpu/matmul_kernels.h"

namespace latent::kernels::cpu {

template <class Isa, WeightFormat kFormat>
struct F32Matmul {
  using Vec = typename Isa::Vec;
  static constexpr int kLanes = 16, kRows = Isa::kTileRows, kTokens = Isa::kTileTokens;
  static constexpr int kElementBytes =
      kFormat == WeightFormat::kF32 ? 4 : (kFormat == WeightFormat::kF8E4M3 ? 1 : 2);

  static const char* row(const WeightRows& w, int64_t n) {
    return static_cast<const char*>(w.values) + n * w.row_stride * kElementBytes;
  }

  static Vec read(const char* p) {
    if constexpr (kFormat == WeightFormat::kF32) return Isa::load(reinterpret_cast<const float*>(p));
    if constexpr (kFormat == WeightFormat::kF16) return Isa::load_f16(p);
    if constexpr (kFormat == WeightFormat::kBF16) return Isa::load_bf16(p);
    if constexpr (kFormat == WeightFormat::kF8E4M3) return Isa::load_e4m3(p);
  }

  // `count` < 16 elements, zeros behind them; reads no byte beyond.
  static Vec read_some(const char* p, int64_t count) {
    alignas(64) char bytes[kLanes * kElementBytes] = {};
    for (int64_t i = 0; i < count * kElementBytes; ++i) bytes[i] = p[i];
    return read(bytes);
  }

  // `count` elements times `scale` to dst.
  static void decode(const char* p, int64_t count, float scale, float* dst) {
    const Vec s = Isa::broadcast(scale);
    int64_t k = 0;
    for (; k + kLanes <= count; k += kLanes) Isa::store(dst + k, Isa::mul(read(p + k * kElementBytes), s));
    if (k == count) return;
    alignas(64) float rest[kLanes];
    Isa::store(rest, Isa::mul(read_some(p + k * kElementBytes, count - k), s));
    for (int64_t i = 0; k + i < count; ++i) dst[k + i] = rest[i];
  }

  // Row n as floats, whole chunks: decoded into `scratch` unless memory already holds that.
  static const float* floats(const WeightRows& w, int64_t n, float* scratch) {
    const char* p = row(w, n);
    if (kFormat == WeightFormat::kF32 && w.cols % kLanes == 0) return reinterpret_cast<const float*>(p);
    if (w.scales == nullptr) {
      decode(p, w.cols, 1.0f, scratch);
    } else {
      const float* scales = w.scales + n / w.block_rows * w.scale_stride;
      for (int64_t k = 0; k < w.cols; k += w.block_cols) {
        const int64_t count = w.cols - k < w.block_cols ? w.cols - k : w.block_cols;
        decode(p + k * kElementBytes, count, scales[k / w.block_cols], scratch + k);
      }
    }
    for (int64_t k = w.cols; k % kLanes != 0; ++k) scratch[k] = 0;
    return scratch;
  }

  // Rows n, n + step, … of one token side by side: a lane's chain of additions is long, and memory answers
  // several streams sooner than one.
  template <int kSide>
  static void stream_rows(const MultiplyJob& job, int64_t n, int64_t step) {
    const WeightRows& w = job.weight;
    const auto* x = static_cast<const float*>(job.x.data);
    const char* p[kSide];
    Vec acc[kSide];
    for (int r = 0; r < kSide; ++r) {
      p[r] = row(w, n + r * step);
      acc[r] = Isa::zero();
    }
    const int64_t whole = w.cols / kLanes, rest = w.cols % kLanes;
    for (int64_t c = 0; c < whole; ++c) {
      const Vec xv = Isa::load(x + c * kLanes);
      for (int r = 0; r < kSide; ++r) acc[r] = Isa::fma(read(p[r] + c * kLanes * kElementBytes), xv, acc[r]);
    }
    for (int r = 0; r < kSide && rest > 0; ++r)
      acc[r] = Isa::fma(read_some(p[r] + whole * kLanes * kElementBytes, rest), Isa::load(x + whole * kLanes),
                        acc[r]);
    for (int r = 0; r < kSide; ++r) job.y[n + r * step - job.first] = Isa::sum(acc[r]);
  }

  static void stream(const MultiplyJob& job) {
    const int64_t step = (job.last - job.first) / kStreams;
    for (int64_t n = job.first; n < job.first + step; ++n) stream_rows<kStreams>(job, n, step);
    for (int64_t n = job.first + kStreams * step; n < job.last; ++n) stream_rows<1>(job, n, 1);
  }

  // One token, rows with scales.
  static void stream_scaled(const MultiplyJob& job) {
    const auto* x = static_cast<const float*>(job.x.data);
    for (int64_t n = job.first; n < job.last; ++n) {
      const float* w = floats(job.weight, n, job.row_scratch);
      Vec acc = Isa::zero();
      for (int64_t c = 0; c < job.x.num_chunks; ++c)
        acc = Isa::fma(Isa::load(w + c * kLanes), Isa::load(x + c * kLanes), acc);
      job.y[n - job.first] = Isa::sum(acc);
    }
  }

  // Where the rows of a tile lie, in floats.
  struct Tile {
    const float* w;
    int64_t row_step, chunk_step;
    const char* next;  // memory that the next panel will read, fetched `lines` lines a chunk
    int64_t lines;
  };

  // Rows [first, last) tile by tile [num_chunks][kRows][16]; rows up to a whole tile are zero.
  static void fill_panel(const MultiplyJob& job, int64_t first, int64_t last) {
    const int64_t chunks = job.x.num_chunks;
    for (int64_t n = first; n < last || (n - first) % kRows != 0; ++n) {
      const int64_t i = n - first;
      float* dst = static_cast<float*>(job.panel) + (i / kRows * chunks * kRows + i % kRows) * kLanes;
      const float* w = n < last ? floats(job.weight, n, job.row_scratch) : nullptr;
      for (int64_t c = 0; c < chunks; ++c)
        Isa::store(dst + c * kRows * kLanes, w != nullptr ? Isa::load(w + c * kLanes) : Isa::zero());
    }
  }

  // Chunks [first, first + count) of a tile times a group of tokens. The sums go on from `sums` and back
  // there, or to y (kTokens rows of kRows) after the last chunk.
  static void multiply_tile(const MultiplyJob& job, const Tile& tile, const float* x, int64_t first,
                            int64_t count, float* sums, float* y) {
    Vec acc[kTokens][kRows];
    for (int t = 0; t < kTokens; ++t)
      for (int r = 0; r < kRows; ++r)
        acc[t][r] = first == 0 ? Isa::zero() : Isa::load(sums + (t * kRows + r) * kLanes);
    const float* w = tile.w + first * tile.chunk_step;
    const char* next = tile.next + first * tile.lines * 64;
    x += first * kTokens * kLanes;
    for (int64_t c = 0; c < count; ++c, w += tile.chunk_step, x += kTokens * kLanes) {
      for (int64_t i = 0; i < tile.lines; ++i, next += 64) __builtin_prefetch(next);
      Vec wv[kRows];
      for (int r = 0; r < kRows; ++r) wv[r] = Isa::load(w + r * tile.row_step);
      for (int t = 0; t < kTokens; ++t) {
        const Vec xv = Isa::load(x + t * kLanes);
        for (int r = 0; r < kRows; ++r) acc[t][r] = Isa::fma(wv[r], xv, acc[t][r]);
      }
    }
    if (first + count == job.x.num_chunks) return Isa::store_sums(acc, y, job.y_stride);
    for (int t = 0; t < kTokens; ++t)
      for (int r = 0; r < kRows; ++r) Isa::store(sums + (t * kRows + r) * kLanes, acc[t][r]);
  }

  // A panel of one tile is read in place if memory holds just what a tile wants.
  static Tile first_tile(const MultiplyJob& job, int64_t first, int64_t last) {
    const WeightRows& w = job.weight;
    const int64_t chunks = job.x.num_chunks, groups = (job.x.num_tokens + kTokens - 1) / kTokens;
    const bool single = job.panel_rows == kRows;
    const int64_t next_lines = kRows * w.cols * kElementBytes / 64;
    Tile tile{.w = static_cast<const float*>(job.panel),
              .row_step = kLanes,
              .chunk_step = kRows * kLanes,
              .next = row(w, first + kRows),
              .lines = single && w.row_stride == w.cols
                           ? (next_lines + groups * chunks - 1) / (groups * chunks)
                           : 0};
    if (kFormat == WeightFormat::kF32 && single && last - first == kRows && w.cols % kLanes == 0) {
      tile.w = reinterpret_cast<const float*>(row(w, first));
      tile.row_step = w.row_stride;
      tile.chunk_step = kLanes;
    } else {
      fill_panel(job, first, last);
    }
    return tile;
  }

  // Tokens group by group; of a group a block of columns at a time, so that it stays in the first-level cache
  // while the panel's rows pass.
  static void multiply_panel(const MultiplyJob& job, int64_t first, int64_t last) {
    constexpr int64_t kBlockChunks = 1024 / kLanes;
    const int64_t chunks = job.x.num_chunks;
    const Tile start = first_tile(job, first, last);
    const int64_t step = job.panel_rows == kRows ? chunks : kBlockChunks;
    Tile tile = start;
    for (int64_t t = 0; t < job.x.num_tokens; t += kTokens) {
      const float* x = static_cast<const float*>(job.x.data) + t * chunks * kLanes;
      for (int64_t c = 0; c < chunks; c += step) {
        const int64_t count = chunks - c < step ? chunks - c : step;
        for (int64_t n = first; n < last; n += kRows) {
          tile.w = start.w + (n - first) * chunks * kLanes;
          multiply_tile(job, tile, x, c, count, job.sums + (n - first) * kTokens * kLanes,
                        job.y + t * job.y_stride + n - job.first);
        }
      }
      tile.next += tile.lines * chunks * 64;
    }
  }

  static void multiply(const MultiplyJob& job) {
    if (job.x.num_tokens == 1) return job.weight.scales == nullptr ? stream(job) : stream_scaled(job);
    for (int64_t n = job.first; n < job.last; n += job.panel_rows)
      multiply_panel(job, n, n + job.panel_rows < job.last ? n + job.panel_rows : job.last);
  }
};

template <class Isa>
struct F32Rows {
  using Vec = typename Isa::Vec;
  static constexpr int kLanes = 16;

  static Vec read(const void* source, bool is_bf16, int64_t index, int64_t count) {
    const auto* p = static_cast<const char*>(source) + index * (is_bf16 ? 2 : 4);
    if (count >= kLanes) return is_bf16 ? Isa::load_bf16(p) : Isa::load(reinterpret_cast<const float*>(p));
    alignas(64) char bytes[kLanes * 4] = {};
    for (int64_t i = 0; i < count * (is_bf16 ? 2 : 4); ++i) bytes[i] = p[i];
    return is_bf16 ? Isa::load_bf16(bytes) : Isa::load(reinterpret_cast<const float*>(bytes));
  }

  static void pack(const PackJob& job) {
    const int64_t first = job.first_col / kLanes;
    for (int64_t t = job.first_group * job.group; t < job.last_group * job.group; ++t) {
      const bool live = t < job.num_tokens;
      const int64_t source_row = !live ? 0 : (job.rows != nullptr ? job.rows[t] : t);
      auto* dst = static_cast<float*>(job.packed) +
                  (t / job.group * job.num_chunks * job.group + first * job.group + t % job.group) * kLanes;
      for (int64_t k = 0; k < job.num_cols; k += kLanes, dst += job.group * kLanes)
        Isa::store(dst, live ? read(job.source, job.source_is_bf16, source_row * job.row_stride + k,
                                    job.num_cols - k)
                             : Isa::zero());
    }
  }

  static void store(const float* y, int64_t count, void* out, bool out_is_bf16) {
    for (int64_t i = 0; i < count; i += kLanes) {
      const int64_t left = count - i < kLanes ? count - i : kLanes;
      alignas(64) char bytes[kLanes * 4];
      const int64_t element = out_is_bf16 ? 2 : 4;
      char* dst = static_cast<char*>(out) + i * element;
      char* to = left == kLanes ? dst : bytes;
      const Vec v = read(y, false, i, left);
      if (out_is_bf16)
        Isa::store_bf16(to, v);
      else
        Isa::store(reinterpret_cast<float*>(to), v);
      for (int64_t b = 0; to == bytes && b < left * element; ++b) dst[b] = bytes[b];
    }
  }

  static void silu_mul(const float* gate, const float* up, float* out, int64_t count) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) out[i] = silu(gate[i]) * up[i];
  }
};

template <class Isa, WeightFormat kFormat>
constexpr MatmulKernels kF32Kernels = {
    .x_bytes = 4,
    .chunk = 16,
    .chunk_unit = 16,
    .tile_rows = Isa::kTileRows,
    .tile_tokens = Isa::kTileTokens,
    .pack = F32Rows<Isa>::pack,
    .multiply = F32Matmul<Isa, kFormat>::multiply,
    .store = F32Rows<Isa>::store,
    .silu_mul = F32Rows<Isa>::silu_mul,
};

template <class Isa>
const MatmulKernels& f32_kernels(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return kF32Kernels<Isa, WeightFormat::kF32>;
    case WeightFormat::kF16:
      return kF32Kernels<Isa, WeightFormat::kF16>;
    case WeightFormat::kBF16:
      return kF32Kernels<Isa, WeightFormat::kBF16>;
    default:
      return kF32Kernels<Isa, WeightFormat::kF8E4M3>;
  }
}

}  // namespace latent::kernels::cpu
