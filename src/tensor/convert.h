// SPDX-License-Identifier: Apache-2.0
// Whole-array conversions between float types, and the finite check that every loaded weight goes through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tensor/dtype.h"

namespace latent {

// Converts `count` contiguous elements. Any float dtype to f32, f16, bf16 or f8_e4m3. May not overlap unless
// in place with equal types.
void convert_elements(const void* src, DType src_dtype, void* dst, DType dst_dtype, int64_t count);

// Index of the first element that is NaN or Inf, if any. Integer types are always finite.
std::optional<int64_t> find_non_finite(const void* data, DType dtype, int64_t count);

// One element as a float (ids exactly, up to 2^24).
float element_to_float(const void* data, DType dtype, int64_t index);

}  // namespace latent
