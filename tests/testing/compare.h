// SPDX-License-Identifier: Apache-2.0
// Comparisons that say where and by how much. All take views of any strides and equal shapes.
#pragma once

#include <gtest/gtest.h>

#include "tensor/tensor_view.h"

namespace latent::testing {

// ||got - want|| / ||want|| (Frobenius, in double; got's own norm if want is zero everywhere) is at most
// `bound`, and every element of got is finite wherever want is. A failure prints error, bound, worst index
// and seed.
::testing::AssertionResult is_close(const TensorView& got, const TensorView& want, double bound,
                                    uint64_t seed);

// |got - want| <= bound[i] element by element, where `bound` is an f32 view of the same shape: for bounds of
// the kind (sum |x w|) * eps, which hold for each sum apart.
::testing::AssertionResult is_within(const TensorView& got, const TensorView& want, const TensorView& bound,
                                     uint64_t seed);

// The same dtype and the same bits, element by element.
::testing::AssertionResult same_bits(const TensorView& got, const TensorView& want);

// Contract C6: isfinite for every element.
::testing::AssertionResult all_finite(const TensorView& view);

}  // namespace latent::testing
