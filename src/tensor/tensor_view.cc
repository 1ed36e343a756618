// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <optional>
#include <utility>

namespace latent {
namespace {

Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t step = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides[axis] = step;
    step *= shape[axis];
  }
  return strides;
}

// Strides of `shape` over a view's elements without moving any, if there are such strides.
std::optional<Shape> reshaped_strides(const TensorView& view, const Shape& shape) {
  Shape strides = shape;
  int axis = view.rank() - 1;
  int new_axis = shape.rank() - 1;
  while (new_axis >= 0) {
    // Skip extents of one on both sides, then match the smallest groups of equal size.
    if (shape[new_axis] == 1) {
      strides[new_axis--] = 1;
      continue;
    }
    while (axis >= 0 && view.dim(axis) == 1) --axis;
    if (axis < 0) return std::nullopt;
    int64_t old_size = view.dim(axis), new_size = shape[new_axis];
    int64_t step = view.stride(axis);
    strides[new_axis--] = step;
    while (old_size != new_size) {
      if (new_size < old_size) {
        if (new_axis < 0) return std::nullopt;
        strides[new_axis] = step * new_size;
        new_size *= shape[new_axis--];
      } else {
        if (axis == 0 || view.stride(axis - 1) != view.stride(axis) * view.dim(axis)) return std::nullopt;
        --axis;
        old_size *= view.dim(axis);
      }
    }
    --axis;
  }
  return strides;
}

void copy_axis(const TensorView& from, const TensorView& to, int axis, const std::byte* src, std::byte* dst) {
  const auto bytes = static_cast<int64_t>(dtype_bytes(from.dtype()));
  const int64_t n = from.dim(axis);
  if (axis == from.rank() - 1 && from.stride(axis) == 1 && to.stride(axis) == 1) {
    std::memcpy(dst, src, static_cast<size_t>(n * bytes));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    const std::byte* s = src + i * from.stride(axis) * bytes;
    std::byte* d = dst + i * to.stride(axis) * bytes;
    if (axis == from.rank() - 1)
      std::memcpy(d, s, static_cast<size_t>(bytes));
    else
      copy_axis(from, to, axis + 1, s, d);
  }
}

}  // namespace

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape.extents(), ", ")); }

TensorView::TensorView(void* data, DType dtype, const Shape& shape)
    : TensorView(data, dtype, shape, contiguous_strides(shape)) {}

bool TensorView::is_contiguous() const {
  int64_t step = 1;
  for (int axis = rank() - 1; axis >= 0; --axis) {
    if (shape_[axis] != 1 && strides_[axis] != step) return false;
    step *= shape_[axis];
  }
  return true;
}

TensorView TensorView::slice(int axis, int64_t begin, int64_t end) const {
  CHECK(axis >= 0 && axis < rank() && 0 <= begin && begin <= end && end <= dim(axis),
        "slice [{}, {}) of axis {} of {}", begin, end, axis, latent::to_string(shape_));
  TensorView view = *this;
  view.shape_[axis] = end - begin;
  view.data_ =
      static_cast<std::byte*>(data_) + begin * strides_[axis] * static_cast<int64_t>(dtype_bytes(dtype_));
  return view;
}

TensorView TensorView::at(int64_t index) const {
  CHECK(rank() > 0 && index >= 0 && index < dim(0), "index {} of {}", index, latent::to_string(shape_));
  return TensorView(
      static_cast<std::byte*>(data_) + index * strides_[0] * static_cast<int64_t>(dtype_bytes(dtype_)),
      dtype_, Shape(shape_.extents().subspan(1)), Shape(strides_.extents().subspan(1)));
}

TensorView TensorView::reshape(const Shape& shape) const {
  CHECK(shape.num_elements() == num_elements(), "reshape {} to {}", latent::to_string(shape_),
        latent::to_string(shape));
  if (num_elements() == 0 || is_contiguous()) return TensorView(data_, dtype_, shape);
  const std::optional<Shape> strides = reshaped_strides(*this, shape);
  CHECK(strides.has_value(), "reshape {} to {} needs a copy", latent::to_string(*this),
        latent::to_string(shape));
  return TensorView(data_, dtype_, shape, *strides);
}

TensorView TensorView::transpose(int axis_a, int axis_b) const {
  TensorView view = *this;
  std::swap(view.shape_[axis_a], view.shape_[axis_b]);
  std::swap(view.strides_[axis_a], view.strides_[axis_b]);
  return view;
}

std::string to_string(const TensorView& view) {
  std::string text = fmt::format("{}{}", to_string(view.dtype()), to_string(view.shape()));
  if (!view.is_contiguous()) text += fmt::format(" strides {}", to_string(view.strides()));
  return text;
}

void copy_elements(const TensorView& from, const TensorView& to) {
  CHECK(from.shape() == to.shape() && from.dtype() == to.dtype(), "copy {} to {}", to_string(from),
        to_string(to));
  if (from.num_elements() == 0) return;
  const auto* src = static_cast<const std::byte*>(from.raw());
  auto* dst = static_cast<std::byte*>(to.raw());
  if (from.is_contiguous() && to.is_contiguous())
    std::memcpy(dst, src, static_cast<size_t>(from.num_bytes()));
  else
    copy_axis(from, to, 0, src, dst);
}

}  // namespace latent
