// SPDX-License-Identifier: Apache-2.0
// A token's row of a quantised cache, byte by byte: the reference that every reader and writer is held to.
#pragma once

#include "ops/kv_layout.h"
#include "tensor/float_types.h"

namespace latent::kernels {

// e4m3(value / scale), to nearest even. Finite values saturate at 448 * scale; others become NaN.
Float8E4M3 encode_e4m3(float value, float scale);

// amax / 448 of the finite values, at least the smallest normal float.
float block_scale(const float* values, int count);

// Writes columns [first, first + count) of a row, the latent's first, then the rope key's; of a kFp8Blocks
// latent whole blocks of 128, with their scales. `scale` is that of a kFp8 cache. Not for kWide.
void encode_kv_columns(const ops::KvLayout& layout, const float* values, int first, int count, float scale,
                       std::byte* row);

// Element `column` of a row, without rounding. Not for kWide.
double kv_element(const ops::KvLayout& layout, const std::byte* row, float scale, int column);

// Columns [first, first + count) of a row, each rounded to f32 once. Not for kWide.
void decode_kv_row(const ops::KvLayout& layout, const std::byte* row, float scale, int first, int count,
                   float* to);

}  // namespace latent::kernels
