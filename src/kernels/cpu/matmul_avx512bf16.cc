// SPDX-License-Identifier: Apache-2.0
// Products of bf16 numbers, exact in f32, two to a lane and step (vdpbf16ps). bf16 weights are read as they
// lie; f8_e4m3 weights become bf16 through a table (every finite code is a bf16 number), 128 columns or
// whatever a block holds are summed and then multiplied by the block's scale.
//
// vdpbf16ps takes subnormal inputs and results as zero. A bf16 below 2^-126 is 1e-38; what is lost is far
// below one rounding of any sum that matters.
#include <immintrin.h>

#include "kernels/cpu/matmul_avx512_lanes.h"
#include "kernels/cpu/matmul_kernels.h"

namespace latent::kernels::cpu {
namespace {

constexpr int kChunk = 32, kTokens = 4, kRows = 4, kLanes = 16;

inline __m512i load(const void* p) { return _mm512_loadu_si512(p); }
inline __m512 dot(__m512 acc, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// The upper and the lower byte of the bf16 number of each non-negative e4m3 code.
struct E4M3Table {
  alignas(64) uint8_t high[128], low[128];
};
constexpr E4M3Table make_table() {
  E4M3Table table{};
  for (uint32_t code = 0; code < 128; ++code) {
    const uint32_t exponent = code >> 3;
    uint32_t mantissa = code & 7, bits = 0;
    if (code == 0x7F) {
      bits = 0x7FC0;
    } else if (exponent != 0) {
      bits = ((exponent + 120) << 7) | (mantissa << 4);
    } else if (mantissa != 0) {  // mantissa * 2^-9: shift the leading one out
      uint32_t e = 121;
      for (; (mantissa & 8) == 0; --e) mantissa <<= 1;
      bits = (e << 7) | ((mantissa & 7) << 4);
    }
    table.high[code] = static_cast<uint8_t>(bits >> 8);
    table.low[code] = static_cast<uint8_t>(bits & 0xFF);
  }
  return table;
}
constexpr E4M3Table kTable = make_table();

// Weights in memory: how 64 (f8_e4m3) or 32 (bf16) columns become chunks.
struct Bf16Rows {
  static constexpr int kElementBytes = 2, kUnit = 32;
  static constexpr bool kScaled = false;

  void read(const char* p, __m512i (&chunk)[1]) const { chunk[0] = load(p); }
  void read_some(const char* p, int64_t count, __m512i (&chunk)[1]) const {
    chunk[0] = _mm512_maskz_loadu_epi16((1u << count) - 1, p);
  }
};

// The bytes of 64 codes are interleaved 128 bits at a time, so the chunks hold columns 0-7, 16-23, 32-39,
// 48-55 and the rest; activations are packed in the same order.
struct E4M3Rows {
  static constexpr int kElementBytes = 1, kUnit = 64;
  static constexpr bool kScaled = true;
  const __m512i high0 = load(kTable.high), high1 = load(kTable.high + 64);
  const __m512i low0 = load(kTable.low), low1 = load(kTable.low + 64);

  void widen(__m512i codes, __m512i (&chunk)[2]) const {
    const __m512i sign = _mm512_and_si512(codes, _mm512_set1_epi8(static_cast<char>(0x80)));
    const __m512i high = _mm512_or_si512(_mm512_permutex2var_epi8(high0, codes, high1), sign);
    const __m512i low = _mm512_permutex2var_epi8(low0, codes, low1);
    chunk[0] = _mm512_unpacklo_epi8(low, high);
    chunk[1] = _mm512_unpackhi_epi8(low, high);
  }
  void read(const char* p, __m512i (&chunk)[2]) const { widen(load(p), chunk); }
  void read_some(const char* p, int64_t count, __m512i (&chunk)[2]) const {
    widen(_mm512_maskz_loadu_epi8((uint64_t{1} << count) - 1, p), chunk);
  }
};

template <class Rows>
struct Bf16Matmul {
  static constexpr int kChunks = Rows::kUnit / kChunk;

  static const char* row(const WeightRows& w, int64_t n) {
    return static_cast<const char*>(w.values) + n * w.row_stride * Rows::kElementBytes;
  }
  static const float* row_scales(const WeightRows& w, int64_t n) {
    return w.scales + n / w.block_rows * w.scale_stride;
  }

  // acc + w . x over one unit of columns.
  static __m512 stream_unit(const Rows& rows, const char* w, const char* x, __m512 acc) {
    __m512i chunk[kChunks];
    rows.read(w, chunk);
    for (int i = 0; i < kChunks; ++i) acc = dot(acc, chunk[i], load(x + i * 64));
    return acc;
  }

  // acc[r] + w[r] . x over any columns.
  template <int kSide>
  static void stream_block(const Rows& rows, const char* const (&w)[kSide], int64_t cols, const char* x,
                           __m512 (&acc)[kSide]) {
    int64_t k = 0;
    for (; k + Rows::kUnit <= cols; k += Rows::kUnit, x += kChunks * 64)
      for (int r = 0; r < kSide; ++r) acc[r] = stream_unit(rows, w[r] + k * Rows::kElementBytes, x, acc[r]);
    if (k == cols) return;
    for (int r = 0; r < kSide; ++r) {
      __m512i chunk[kChunks];
      rows.read_some(w[r] + k * Rows::kElementBytes, cols - k, chunk);
      for (int i = 0; i < kChunks; ++i) acc[r] = dot(acc[r], chunk[i], load(x + i * 64));
    }
  }

  // Rows whose columns carry scales; kBlock is the columns of a block, 0 if only the weight knows them.
  template <int kSide, int kBlock>
  static void stream_scaled(const Rows& rows, const WeightRows& w, const float* const (&scales)[kSide],
                            const char* (&p)[kSide], const char* x, __m512 (&total)[kSide]) {
    const int64_t block = kBlock != 0 ? kBlock : w.block_cols;
    for (int64_t k = 0; k < w.cols; k += block) {
      __m512 sum[kSide];
      for (int r = 0; r < kSide; ++r) sum[r] = _mm512_setzero_ps();
      if (k + block <= w.cols)
        for (int64_t i = 0; i < block; i += Rows::kUnit)
          for (int r = 0; r < kSide; ++r) sum[r] = stream_unit(rows, p[r] + i, x + 2 * (k + i), sum[r]);
      else
        stream_block(rows, p, w.cols - k, x + 2 * k, sum);
      for (int r = 0; r < kSide; ++r) {
        total[r] = _mm512_fmadd_ps(sum[r], _mm512_set1_ps(scales[r][k / block]), total[r]);
        p[r] += block;
      }
    }
  }

  // Rows n, n + step, … side by side: their chains of additions overlap, and memory answers several streams
  // sooner than one.
  template <int kSide>
  static void stream_rows(const Rows& rows, const MultiplyJob& job, int64_t n, int64_t step) {
    const WeightRows& w = job.weight;
    const auto* x = static_cast<const char*>(job.x.data);
    const char* p[kSide];
    __m512 acc[kSide];
    for (int r = 0; r < kSide; ++r) {
      p[r] = row(w, n + r * step);
      acc[r] = _mm512_setzero_ps();
    }
    if constexpr (Rows::kScaled) {
      const float* scales[kSide];
      for (int r = 0; r < kSide; ++r) scales[r] = row_scales(w, n + r * step);
      if (w.block_cols == 128)
        stream_scaled<kSide, 128>(rows, w, scales, p, x, acc);
      else
        stream_scaled<kSide, 0>(rows, w, scales, p, x, acc);
    } else {
      stream_block(rows, p, w.cols, x, acc);
    }
    for (int r = 0; r < kSide; ++r) job.y[n + r * step - job.first] = sum_lanes(acc[r]);
  }

  // One token: a row is one chain.
  static void stream(const MultiplyJob& job) {
    const Rows rows;
    const int64_t step = (job.last - job.first) / kStreams;
    for (int64_t n = job.first; n < job.first + step; ++n) stream_rows<kStreams>(rows, job, n, step);
    for (int64_t n = job.first + kStreams * step; n < job.last; ++n) stream_rows<1>(rows, job, n, 1);
  }

  // Where the rows of a tile lie, in bytes.
  struct Tile {
    const char* w;
    int64_t row_step, chunk_step;
    int64_t first_row;
    const char* next;  // memory that the next panel will read, fetched `lines` lines a chunk
    int64_t lines;
  };

  // One weight row into its place of a panel tile [num_chunks][kRows][32].
  static void fill_row(const Rows& rows, const char* w, int64_t cols, char* dst) {
    __m512i chunk[kChunks];
    for (int64_t k = 0; k < cols; k += Rows::kUnit) {
      if (cols - k >= Rows::kUnit)
        rows.read(w + k * Rows::kElementBytes, chunk);
      else
        rows.read_some(w + k * Rows::kElementBytes, cols - k, chunk);
      for (int i = 0; i < kChunks; ++i, dst += kRows * 64) _mm512_storeu_si512(dst, chunk[i]);
    }
  }

  // Rows [first, last); rows up to a whole tile are zero.
  static void fill_panel(const MultiplyJob& job, int64_t first, int64_t last) {
    const Rows rows;
    const int64_t chunks = job.x.num_chunks;
    for (int64_t n = first; n < last || (n - first) % kRows != 0; ++n) {
      const int64_t i = n - first;
      char* dst = static_cast<char*>(job.panel) + (i / kRows * chunks * kRows + i % kRows) * 64;
      if (n < last) {
        fill_row(rows, row(job.weight, n), job.weight.cols, dst);
        continue;
      }
      for (int64_t c = 0; c < chunks; ++c) _mm512_storeu_si512(dst + c * kRows * 64, _mm512_setzero_si512());
    }
  }

  // acc += `chunks` chunks of a tile, from chunk `first` on, times a group of tokens.
  static void add_chunks(const Tile& tile, const char* x, int64_t first, int64_t chunks,
                         __m512 (&acc)[kTokens][kRows]) {
    const char* w = tile.w + first * tile.chunk_step;
    const char* next = tile.next + first * tile.lines * 64;
    x += first * kTokens * 64;
    for (int64_t c = 0; c < chunks; ++c, w += tile.chunk_step, x += kTokens * 64) {
      for (int64_t i = 0; i < tile.lines; ++i, next += 64) _mm_prefetch(next, _MM_HINT_T0);
      __m512i wv[kRows];
      for (int r = 0; r < kRows; ++r) wv[r] = load(w + r * tile.row_step);
      for (int t = 0; t < kTokens; ++t) {
        const __m512i xv = load(x + t * 64);
        for (int r = 0; r < kRows; ++r) acc[t][r] = dot(acc[t][r], wv[r], xv);
      }
    }
  }

  static void clear(__m512 (&acc)[kTokens][kRows]) {
    for (auto& row_acc : acc)
      for (__m512& a : row_acc) a = _mm512_setzero_ps();
  }

  static void load_sums(const float* sums, __m512 (&acc)[kTokens][kRows]) {
    for (int t = 0; t < kTokens; ++t)
      for (int r = 0; r < kRows; ++r) acc[t][r] = _mm512_load_ps(sums + (t * kRows + r) * kLanes);
  }

  // sums += the chunks, block of columns by block, each times its scale. The sums stay in memory, for no
  // register is left for them.
  static void add_scaled(const MultiplyJob& job, const Tile& tile, const char* x, int64_t first,
                         int64_t count, float* sums) {
    const float* scales[kRows];
    for (int r = 0; r < kRows; ++r)
      scales[r] = row_scales(job.weight, tile.first_row + r < job.last ? tile.first_row + r : job.last - 1);
    const int64_t step = job.weight.block_cols / kChunk, end = first + count;
    for (int64_t c = first; c < end; c += step) {
      __m512 acc[kTokens][kRows];
      clear(acc);
      add_chunks(tile, x, c, end - c < step ? end - c : step, acc);
      for (int r = 0; r < kRows; ++r) {
        const __m512 scale = _mm512_set1_ps(scales[r][c / step]);
        for (int t = 0; t < kTokens; ++t) {
          float* sum = sums + (t * kRows + r) * kLanes;
          const __m512 before = c == 0 ? _mm512_setzero_ps() : _mm512_load_ps(sum);
          _mm512_store_ps(sum, _mm512_fmadd_ps(acc[t][r], scale, before));
        }
      }
    }
  }

  // Chunks [first, first + count) of a tile times a group of tokens, all of them without scales. Scaled sums
  // go on from `sums` and back there; after the last chunk they go to y (kTokens rows of kRows).
  static void multiply_tile(const MultiplyJob& job, const Tile& tile, const char* x, int64_t first,
                            int64_t count, float* sums, float* y) {
    __m512 acc[kTokens][kRows];
    if constexpr (Rows::kScaled) {
      add_scaled(job, tile, x, first, count, sums);
      if (first + count != job.x.num_chunks) return;
      load_sums(sums, acc);
    } else {
      clear(acc);
      add_chunks(tile, x, first, count, acc);
    }
    store_tile_sums(acc, y, job.y_stride);
  }

  // A panel of one tile is read in place if memory holds just what a tile wants.
  static Tile first_tile(const MultiplyJob& job, int64_t first, int64_t last) {
    const WeightRows& w = job.weight;
    const int64_t steps = (job.x.num_tokens + kTokens - 1) / kTokens * job.x.num_chunks;
    const int64_t next_lines = kRows * w.cols * Rows::kElementBytes / 64;
    const bool single = job.panel_rows == kRows;
    Tile tile{.w = static_cast<const char*>(job.panel),
              .row_step = 64,
              .chunk_step = kRows * 64,
              .first_row = first,
              .next = row(w, first + kRows),
              .lines = single && w.row_stride == w.cols ? (next_lines + steps - 1) / steps : 0};
    if (!Rows::kScaled && single && last - first == kRows && w.cols % kChunk == 0) {
      tile.w = row(w, first);
      tile.row_step = w.row_stride * Rows::kElementBytes;
      tile.chunk_step = 64;
    } else {
      fill_panel(job, first, last);
    }
    return tile;
  }

  // Chunks of a block of columns. Sums that are in memory anyway, for their scales, pay nothing for stopping
  // after about 2048 columns, whole scale blocks, so that a group of tokens stays in the first-level cache.
  static int64_t block_chunks(const MultiplyJob& job) {
    constexpr int64_t kCols = 2048;
    if (!Rows::kScaled || job.panel_rows == kRows) return job.x.num_chunks;
    const int64_t unit = job.weight.block_cols;
    return (kCols > unit ? kCols / unit * unit : unit) / kChunk;
  }

  // Tokens group by group; of a group a block of columns at a time while the panel's rows pass.
  static void multiply_panel(const MultiplyJob& job, int64_t first, int64_t last) {
    const int64_t chunks = job.x.num_chunks, step = block_chunks(job);
    const Tile start = first_tile(job, first, last);
    Tile tile = start;
    for (int64_t t = 0; t < job.x.num_tokens; t += kTokens) {
      const char* x = static_cast<const char*>(job.x.data) + t * chunks * 64;
      for (int64_t c = 0; c < chunks; c += step) {
        const int64_t count = chunks - c < step ? chunks - c : step;
        for (int64_t n = first; n < last; n += kRows) {
          tile.w = start.w + (n - first) * chunks * 64;
          tile.first_row = n;
          multiply_tile(job, tile, x, c, count, job.sums + (n - first) * kTokens * kLanes,
                        job.y + t * job.y_stride + n - job.first);
        }
      }
      tile.next += tile.lines * chunks * 64;
    }
  }

  static void multiply(const MultiplyJob& job) {
    if (job.x.num_tokens == 1) return stream(job);
    for (int64_t n = job.first; n < job.last; n += job.panel_rows)
      multiply_panel(job, n, n + job.panel_rows < job.last ? n + job.panel_rows : job.last);
  }
};

// 16 activations as bf16 in the low half of each lane, `count` of them.
inline __m512i read_bf16(const PackJob& job, int64_t row, int64_t col) {
  const int64_t left = job.num_cols - col;
  const auto mask = static_cast<__mmask16>(left >= 16 ? 0xFFFF : left <= 0 ? 0 : (1 << left) - 1);
  const int64_t at = row * job.row_stride + col;
  if (job.source_is_bf16)
    return _mm512_cvtepu16_epi32(
        _mm256_maskz_loadu_epi16(mask, static_cast<const uint16_t*>(job.source) + at));
  const __m512 v = _mm512_maskz_loadu_ps(mask, static_cast<const float*>(job.source) + at);
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_srli_epi32(_mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000)), 16);
}

inline __m512i read_chunk(const PackJob& job, int64_t row, int64_t col) {
  const __m256i low = _mm512_cvtepi32_epi16(read_bf16(job, row, col));
  const __m256i high = _mm512_cvtepi32_epi16(read_bf16(job, row, col + 16));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

template <class Rows>
void pack(const PackJob& job) {
  const int64_t first = job.first_col / kChunk;
  for (int64_t t = job.first_group * job.group; t < job.last_group * job.group; ++t) {
    const bool live = t < job.num_tokens;
    const int64_t source_row = !live ? 0 : (job.rows != nullptr ? job.rows[t] : t);
    char* dst = static_cast<char*>(job.packed) +
                (t / job.group * job.num_chunks * job.group + first * job.group + t % job.group) * 64;
    const int64_t step = job.group * 64;
    for (int64_t k = 0; k < job.num_cols; k += Rows::kUnit, dst += Rows::kUnit / kChunk * step) {
      __m512i a = _mm512_setzero_si512(), b = a;
      if (live) a = read_chunk(job, source_row, k);
      if constexpr (Rows::kUnit == kChunk) {
        _mm512_storeu_si512(dst, a);
      } else {
        if (live) b = read_chunk(job, source_row, k + kChunk);
        _mm512_storeu_si512(dst, _mm512_shuffle_i32x4(a, b, 0x88));
        _mm512_storeu_si512(dst + step, _mm512_shuffle_i32x4(a, b, 0xDD));
      }
    }
  }
}

template <class Rows>
MatmulKernels make_kernels() {
  MatmulKernels kernels = avx512_f32_kernels(WeightFormat::kF32);  // store and silu_mul are the same
  kernels.x_bytes = 2;
  kernels.chunk = kChunk;
  kernels.chunk_unit = Rows::kUnit;
  kernels.tile_rows = kRows;
  kernels.tile_tokens = kTokens;
  kernels.pack = pack<Rows>;
  kernels.multiply = Bf16Matmul<Rows>::multiply;
  return kernels;
}

}  // namespace

const MatmulKernels& avx512_bf16_kernels(WeightFormat format) {
  static const MatmulKernels kBf16 = make_kernels<Bf16Rows>(), kE4M3 = make_kernels<E4M3Rows>();
  return format == WeightFormat::kBF16 ? kBf16 : kE4M3;
}

}  // namespace latent::kernels::cpu
