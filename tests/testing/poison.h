// SPDX-License-Identifier: Apache-2.0
// Contract C3 in tests: outputs and scratch hold a pattern before a kernel runs, and the results are the same
// bits whichever pattern it was.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "device/poison.h"
#include "tensor/tensor.h"
#include "testing/elements.h"

namespace latent::testing {

constexpr PoisonPattern kPoisonPatterns[] = {PoisonPattern::kNan, PoisonPattern::kInf, PoisonPattern::kLarge};

// Overwrites every element of a view; memory between its rows is left alone.
inline void poison(const TensorView& view, PoisonPattern pattern) {
  const size_t bytes = dtype_bytes(view.dtype());
  for_each_element(view, [&](const Index&, void* element) {
    fill_poison(element, bytes, element_kind(view.dtype()), pattern);
  });
}

// Scratch is read as f32 by most kernels.
inline void poison(std::span<std::byte> scratch, PoisonPattern pattern) {
  fill_poison(scratch.data(), scratch.size(), ElementKind::kFloat32, pattern);
}

}  // namespace latent::testing
