// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/rowwise.h"

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/convert.h"
#include "tensor/float_types.h"

namespace latent::kernels::ref {
namespace {

double read(const TensorView& view, int64_t row, int64_t column) {
  return element_to_float(view.raw(), view.dtype(), row * view.stride(0) + column);
}

void write(const TensorView& view, int64_t row, int64_t column, double value) {
  const auto rounded = static_cast<float>(value);
  const int64_t index = row * view.stride(0) + column;
  if (view.dtype() == DType::kF32)
    store_float(view.data<float>() + index, rounded);
  else
    store_float(view.data<BFloat16>() + index, rounded);
}

double silu(double x) { return x / (1 + std::exp(-x)); }

// out[t, i] = value(t, i)
template <class Value>
void fill(const TensorView& out, Value value) {
  for (int64_t t = 0; t < out.dim(0); ++t)
    for (int64_t i = 0; i < out.dim(1); ++i) write(out, t, i, value(t, i));
}

double sum_of_squares(const TensorView& x, int64_t row) {
  double sum = 0;
  for (int64_t i = 0; i < x.dim(1); ++i) sum += read(x, row, i) * read(x, row, i);
  return sum;
}

}  // namespace

void rms_norm(const ops::RmsNormParams& p, const KernelContext&) {
  const int64_t width = p.x.dim(1);
  for (int64_t t = 0; t < p.x.dim(0); ++t) {
    const double mean = sum_of_squares(p.x, t) / static_cast<double>(width);
    const double factor = 1 / std::sqrt(mean + double{p.attrs.eps});
    for (int64_t i = 0; i < width; ++i) {
      const double weight = element_to_float(p.weight.raw(), p.weight.dtype(), i);
      write(p.out, t, i, read(p.x, t, i) * factor * weight);
    }
  }
}

void add(const ops::AddParams& p, const KernelContext&) {
  fill(p.out,
       [&](int64_t t, int64_t i) { return read(p.a, t, i) + double{p.attrs.b_scale} * read(p.b, t, i); });
}

void scale(const ops::ScaleParams& p, const KernelContext&) {
  fill(p.out, [&](int64_t t, int64_t i) { return double{p.attrs.factor} * read(p.x, t, i); });
}

void silu(const ops::SiluParams& p, const KernelContext&) {
  fill(p.out, [&](int64_t t, int64_t i) { return silu(read(p.x, t, i)); });
}

void mul(const ops::MulParams& p, const KernelContext&) {
  fill(p.out, [&](int64_t t, int64_t i) { return read(p.a, t, i) * read(p.b, t, i); });
}

void silu_mul(const ops::SiluMulParams& p, const KernelContext&) {
  fill(p.out, [&](int64_t t, int64_t i) { return silu(read(p.gate, t, i)) * read(p.up, t, i); });
}

void gather_rows(const ops::GatherRowsParams& p, const KernelContext&) {
  const auto element = static_cast<int64_t>(dtype_bytes(p.x.dtype()));
  const auto* from = static_cast<const std::byte*>(p.x.raw());
  auto* to = static_cast<std::byte*>(p.out.raw());
  for (int64_t i = 0; i < p.out.dim(0); ++i) {
    const int64_t row = p.rows.data<int32_t>()[i * p.rows.stride(0)];
    CHECK(row >= 0 && row < p.x.dim(0), "gather_rows: row {} of {}", row, p.x.dim(0));
    std::memcpy(to + i * p.out.stride(0) * element, from + row * p.x.stride(0) * element,
                static_cast<size_t>(p.out.dim(1) * element));
  }
}

}  // namespace latent::kernels::ref
