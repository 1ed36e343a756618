// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>

#include "base/parallel.h"
#include "kernels/cpu/matrix.h"

namespace latent::kernels::cpu {
namespace {

// A block of 32 x 32 elements: each cache line of either side is touched by one block only.
constexpr int64_t kBlock = 32;

// The transposed view of x and out, both of rank 4, the last two axes being those worth blocking.
struct Plan {
  TensorView from, to;
};

TensorView rank_four(const TensorView& view) {
  std::array<int64_t, Shape::kMaxRank> shape, strides;
  shape.fill(1);
  strides.fill(0);
  const auto skip = static_cast<size_t>(Shape::kMaxRank - view.rank());
  std::copy_n(view.shape().extents().begin(), view.rank(), shape.begin() + skip);
  std::copy_n(view.strides().extents().begin(), view.rank(), strides.begin() + skip);
  return TensorView(view.raw(), view.dtype(), Shape(shape), Shape(strides));
}

// Axis 3 walks out's unit stride; the axis of x's smallest stride goes to place 2.
Plan make_plan(const ops::TransposeParams& p) {
  Plan plan{rank_four(p.x.transpose(p.attrs.axis_a, p.attrs.axis_b)), rank_four(p.out)};
  int inner = 2;
  for (int axis = 0; axis < 3; ++axis)
    if (plan.from.dim(axis) > 1 &&
        (plan.from.dim(inner) == 1 || plan.from.stride(axis) < plan.from.stride(inner)))
      inner = axis;
  return {plan.from.transpose(inner, 2), plan.to.transpose(inner, 2)};
}

template <class T>
void copy_block(const TensorView& from, const TensorView& to, Range rows, Range cols) {
  const auto* src = static_cast<const T*>(from.raw());
  auto* dst = static_cast<T*>(to.raw());
  for (int64_t r = rows.begin; r < rows.end; ++r)
    for (int64_t c = cols.begin; c < cols.end; ++c)
      dst[r * to.stride(0) + c * to.stride(1)] = src[r * from.stride(0) + c * from.stride(1)];
}

void copy_block(const TensorView& from, const TensorView& to, Range rows, Range cols) {
  switch (dtype_bytes(from.dtype())) {
    case 1:
      return copy_block<uint8_t>(from, to, rows, cols);
    case 2:
      return copy_block<uint16_t>(from, to, rows, cols);
    case 4:
      return copy_block<uint32_t>(from, to, rows, cols);
    default:
      return copy_block<uint64_t>(from, to, rows, cols);
  }
}

}  // namespace

void transpose(const ops::TransposeParams& p, const KernelContext& context) {
  const Plan plan = make_plan(p);
  const int64_t strips = ceil_div<int64_t>(plan.from.dim(2), kBlock), width = plan.from.dim(3);
  const int64_t matrices = plan.from.dim(0) * plan.from.dim(1);
  parallel_ranges(context.num_threads, matrices * strips, 1, [&](Range range) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      const int64_t matrix = i / strips, a = matrix / plan.from.dim(1), b = matrix % plan.from.dim(1);
      const TensorView from = plan.from.at(a).at(b), to = plan.to.at(a).at(b);
      const Range rows{i % strips * kBlock, std::min((i % strips + 1) * kBlock, from.dim(0))};
      for (int64_t c = 0; c < width; c += kBlock)
        copy_block(from, to, rows, {c, std::min(c + kBlock, width)});
    }
  });
}

}  // namespace latent::kernels::cpu
