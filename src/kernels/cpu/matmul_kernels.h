// SPDX-License-Identifier: Apache-2.0
// The border between the matrix operators and the code built for one instruction set: plain structs and
// function pointers. A file built with -mavx… includes this, intrinsics and what is always inlined, so that
// no inline function of a shared header is ever emitted with instructions that another machine lacks.
//
// One order of every sum. A product x[t] . w[n] is summed in 16 lanes: lane l holds one chain over the
// columns in ascending order; the lanes are then folded by 8, 4, 2 and 1. Every path (one token or many, in
// whichever batch, tile or thread) runs this same chain, so a row's bits never depend on the rows that come
// with it (contract C5), with or without --deterministic.
#pragma once

#include <cstddef>
#include <cstdint>

namespace latent::kernels::cpu {

// Rows of a weight matrix; unit stride along columns.
struct WeightRows {
  const void* values;
  int64_t row_stride;  // elements
  int64_t rows;
  int64_t cols;
  const float* scales = nullptr;  // f8_e4m3: block (i, j) at scales[i * scale_stride + j]
  int64_t scale_stride = 0;
  int block_rows = 1;
  int block_cols = 1;
};

// Activations as the kernels read them: groups of `group` tokens, each [num_chunks][group][chunk] elements of
// the kernel's x type, columns past the last and tokens past the last zero.
struct PackedTokens {
  const void* data;
  int64_t num_tokens;
  int64_t num_chunks;
  int group;
};

// Packs columns [first_col, first_col + num_cols) of groups [first_group, last_group). first_col is a
// multiple of 64; so is num_cols unless they are the last columns.
struct PackJob {
  const void* source;  // column first_col of row 0
  bool source_is_bf16;
  int64_t row_stride;   // elements
  const int32_t* rows;  // source row of each token; null: the token's own number
  int64_t first_col;
  int64_t num_cols;
  int64_t first_group;
  int64_t last_group;
  void* packed;
  int64_t num_tokens;
  int64_t num_chunks;
  int group;
};

// Rows [first, last) of a weight times all tokens: y[t * y_stride + n - first]. y has room for whole tiles:
// num_tokens rounded up to a group, last - first rounded up to tile_rows; what is beyond is written and means
// nothing. Weights go through registers straight from memory for one token, and for more in panels of
// `panel_rows` rows (a multiple of tile_rows) that all tokens pass before the next is read. `row_scratch`
// holds one padded row of f32; `panel` panel_rows padded rows of x's type; `sums` 16 f32 for each weight row
// of a panel and token of a tile.
struct MultiplyJob {
  WeightRows weight;
  int64_t first;
  int64_t last;
  PackedTokens x;
  float* y;
  int64_t y_stride;
  int64_t panel_rows;
  float* row_scratch;
  void* panel;
  float* sums;
};

// For one token, rows that are read side by side, each a quarter of the range after the one before.
constexpr int kStreams = 4;

struct MatmulKernels {
  int x_bytes;      // of a packed element: 4 (f32) or 2 (bf16)
  int chunk;        // columns a step; num_chunks = ceil(cols / chunk_unit) * chunk_unit / chunk
  int chunk_unit;   // columns are padded to a multiple of it
  int tile_rows;    // weight rows a tile
  int tile_tokens;  // tokens a tile, and a group of more than one token
  void (*pack)(const PackJob&);
  void (*multiply)(const MultiplyJob&);
  // out[i] = y[i], rounded to bf16 (nearest even, NaN stays NaN) or copied.
  void (*store)(const float* y, int64_t count, void* out, bool out_is_bf16);
  // out[i] = silu(gate[i]) * up[i], as the silu_mul operator; out may be gate.
  void (*silu_mul)(const float* gate, const float* up, float* out, int64_t count);
};

enum class WeightFormat { kF32, kF16, kBF16, kF8E4M3 };

// Kernels of f32 activations and f32 products, for every format and any block size.
const MatmulKernels& avx2_f32_kernels(WeightFormat format);
const MatmulKernels& avx512_f32_kernels(WeightFormat format);
// Kernels of bf16 activations and exact bf16 products (kBF16; kF8E4M3 with block_cols a multiple of 64).
const MatmulKernels& avx512_bf16_kernels(WeightFormat format);

}  // namespace latent::kernels::cpu
