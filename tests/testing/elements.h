// SPDX-License-Identifier: Apache-2.0
// Walks the elements of a view of any strides, in index order.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "tensor/tensor_view.h"

namespace latent::testing {

using Index = std::array<int64_t, Shape::kMaxRank>;

// fn(index, address)
template <class Fn>
void for_each_element(const TensorView& view, Fn&& fn) {
  if (view.num_elements() == 0) return;
  Index index{};
  const auto bytes = static_cast<int64_t>(dtype_bytes(view.dtype()));
  while (true) {
    int64_t offset = 0;
    for (int axis = 0; axis < view.rank(); ++axis)
      offset += index[static_cast<size_t>(axis)] * view.stride(axis);
    fn(index, static_cast<std::byte*>(view.raw()) + offset * bytes);
    int axis = view.rank() - 1;
    while (axis >= 0 && ++index[static_cast<size_t>(axis)] == view.dim(axis))
      index[static_cast<size_t>(axis--)] = 0;
    if (axis < 0) return;
  }
}

}  // namespace latent::testing
