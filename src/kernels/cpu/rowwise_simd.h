// SPDX-License-Identifier: Apache-2.0
// Definitions of rowwise.h's kernels, included by rowwise_<isa>.cc only. Rows are walked in chunks: a chunk
// of a bf16 row is widened to f32 on the stack, so that one loop serves every mix of types.
#pragma once

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/row_threads.h"
#include "kernels/cpu/rowwise.h"
#include "tensor/convert.h"
#include "tensor/float_types.h"

namespace latent::kernels::cpu {
namespace {

constexpr int64_t kChunk = 512;  // 2 KiB of f32: three operands stay in the first-level cache

struct Chunk {
  int64_t row, begin, size;
};

// The chunk's elements in f32: in place, or widened into `buffer`.
const float* read(const TensorView& view, Chunk chunk, float* buffer) {
  if (view.dtype() == DType::kF32) return view.row<float>(chunk.row) + chunk.begin;
  const BFloat16* from = view.row<BFloat16>(chunk.row) + chunk.begin;
#pragma omp simd
  for (int64_t i = 0; i < chunk.size; ++i) buffer[i] = from[i].to_float();
  return buffer;
}

// Where to put the chunk's results: in place, or `buffer`, which finish() then narrows.
float* target(const TensorView& view, Chunk chunk, float* buffer) {
  return view.dtype() == DType::kF32 ? view.row<float>(chunk.row) + chunk.begin : buffer;
}

void finish(const TensorView& view, Chunk chunk, const float* buffer) {
  if (view.dtype() == DType::kF32) return;
  BFloat16* to = view.row<BFloat16>(chunk.row) + chunk.begin;
#pragma omp simd
  for (int64_t i = 0; i < chunk.size; ++i) to[i] = BFloat16::from_float(buffer[i]);
}

template <class Body>
void for_chunks(int64_t row, int64_t width, Body body) {
  for (int64_t begin = 0; begin < width; begin += kChunk)
    body(Chunk{row, begin, std::min(kChunk, width - begin)});
}

template <class Body>
void for_rows(const KernelContext& context, const TensorView& out, int num_inputs, Body body) {
  const int64_t bytes = out.num_bytes() * (num_inputs + 1);
  parallel_ranges(row_threads(context, bytes), out.dim(0), 1, [&](Range rows) {
    for (int64_t t = rows.begin; t < rows.end; ++t) body(t);
  });
}

// out = fn(x), element by element; out may be x.
template <class Fn>
void map(const KernelContext& context, const TensorView& x, const TensorView& out, Fn fn) {
  for_rows(context, out, 1, [&](int64_t t) {
    for_chunks(t, out.dim(1), [&](Chunk chunk) {
      alignas(64) float x_buffer[kChunk], out_buffer[kChunk];
      const float* from = read(x, chunk, x_buffer);
      float* to = target(out, chunk, out_buffer);
#pragma omp simd
      for (int64_t i = 0; i < chunk.size; ++i) to[i] = fn(from[i]);
      finish(out, chunk, to);
    });
  });
}

// out = fn(a, b), element by element; out may be a or b.
template <class Fn>
void map(const KernelContext& context, const TensorView& a, const TensorView& b, const TensorView& out,
         Fn fn) {
  for_rows(context, out, 2, [&](int64_t t) {
    for_chunks(t, out.dim(1), [&](Chunk chunk) {
      alignas(64) float a_buffer[kChunk], b_buffer[kChunk], out_buffer[kChunk];
      const float* left = read(a, chunk, a_buffer);
      const float* right = read(b, chunk, b_buffer);
      float* to = target(out, chunk, out_buffer);
#pragma omp simd
      for (int64_t i = 0; i < chunk.size; ++i) to[i] = fn(left[i], right[i]);
      finish(out, chunk, to);
    });
  });
}

// f32 within a chunk, double across chunks: the error does not grow with the width.
double sum_of_squares(const TensorView& x, int64_t row) {
  double total = 0;
  for_chunks(row, x.dim(1), [&](Chunk chunk) {
    alignas(64) float buffer[kChunk];
    const float* from = read(x, chunk, buffer);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < chunk.size; ++i) sum += from[i] * from[i];
    total += double{sum};
  });
  return total;
}

const float* read_weight(const TensorView& weight, Chunk chunk, float* buffer) {
  if (weight.dtype() != DType::kF16) return read(weight.reshape({1, weight.dim(0)}), chunk, buffer);
  convert_elements(weight.data<Float16>() + chunk.begin, DType::kF16, buffer, DType::kF32, chunk.size);
  return buffer;
}

void normalise_row(const ops::RmsNormParams& p, int64_t row) {
  const double mean = sum_of_squares(p.x, row) / static_cast<double>(p.x.dim(1));
  const auto factor = static_cast<float>(1 / std::sqrt(mean + double{p.attrs.eps}));
  for_chunks(row, p.x.dim(1), [&](Chunk chunk) {
    alignas(64) float x_buffer[kChunk], weight_buffer[kChunk], out_buffer[kChunk];
    const float* x = read(p.x, chunk, x_buffer);
    const float* weight = read_weight(p.weight, Chunk{0, chunk.begin, chunk.size}, weight_buffer);
    float* out = target(p.out, chunk, out_buffer);
#pragma omp simd
    for (int64_t i = 0; i < chunk.size; ++i) out[i] = x[i] * factor * weight[i];
    finish(p.out, chunk, out);
  });
}

}  // namespace

template <class Isa>
void rms_norm(const ops::RmsNormParams& p, const KernelContext& context) {
  for_rows(context, p.out, 1, [&](int64_t t) { normalise_row(p, t); });
}

template <class Isa>
void add(const ops::AddParams& p, const KernelContext& context) {
  map(context, p.a, p.b, p.out, [scale = p.attrs.b_scale](float a, float b) { return a + scale * b; });
}

template <class Isa>
void scale(const ops::ScaleParams& p, const KernelContext& context) {
  map(context, p.x, p.out, [factor = p.attrs.factor](float x) { return factor * x; });
}

template <class Isa>
void silu(const ops::SiluParams& p, const KernelContext& context) {
  map(context, p.x, p.out, [](float x) { return cpu::silu(x); });
}

template <class Isa>
void mul(const ops::MulParams& p, const KernelContext& context) {
  map(context, p.a, p.b, p.out, [](float a, float b) { return a * b; });
}

template <class Isa>
void silu_mul(const ops::SiluMulParams& p, const KernelContext& context) {
  map(context, p.gate, p.up, p.out, [](float gate, float up) { return cpu::silu(gate) * up; });
}

// Instantiates every kernel of this header for one instruction set.
#define LATENT_INSTANTIATE_ROWWISE(Isa)                                         \
  template void rms_norm<Isa>(const ops::RmsNormParams&, const KernelContext&); \
  template void add<Isa>(const ops::AddParams&, const KernelContext&);          \
  template void scale<Isa>(const ops::ScaleParams&, const KernelContext&);      \
  template void silu<Isa>(const ops::SiluParams&, const KernelContext&);        \
  template void mul<Isa>(const ops::MulParams&, const KernelContext&);          \
  template void silu_mul<Isa>(const ops::SiluMulParams&, const KernelContext&)

}  // namespace latent::kernels::cpu
