// SPDX-License-Identifier: Apache-2.0
#include "kernels/kv_row.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace latent::kernels {
namespace {

constexpr float kLargest = 448;

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

Float8E4M3 encode_e4m3(float value, float scale) {
  const Float8E4M3 q = Float8E4M3::from_float(value / scale);
  return std::isfinite(value) ? q : Float8E4M3{static_cast<uint8_t>(q.bits | 0x7F)};
}

float block_scale(const float* values, int count) {
  float largest = 0;
  for (int i = 0; i < count; ++i)
    if (std::isfinite(values[i])) largest = std::max(largest, std::abs(values[i]));
  return std::max(largest / kLargest, std::numeric_limits<float>::min());
}

void encode_kv_columns(const ops::KvLayout& layout, const float* values, int first, int count, float scale,
                       std::byte* row) {
  const bool blocks = layout.format() == ops::KvFormat::kFp8Blocks;
  for (int i = 0; i < count; ++i) {
    const int column = first + i;
    if (blocks && column >= layout.kv_rank) {
      const BFloat16 x = BFloat16::from_float(values[i]);
      std::memcpy(row + layout.rope_at() + (column - layout.kv_rank) * 2, &x, sizeof x);
      continue;
    }
    if (blocks && column % ops::kKvScaleColumns == 0) {
      scale = block_scale(values + i, ops::kKvScaleColumns);
      std::memcpy(row + layout.scales_at() + column / ops::kKvScaleColumns * 4, &scale, sizeof scale);
    }
    row[column] = std::byte{encode_e4m3(values[i], scale).bits};
  }
}

double kv_element(const ops::KvLayout& layout, const std::byte* row, float scale, int column) {
  if (layout.format() == ops::KvFormat::kFp8Blocks) {
    if (column >= layout.kv_rank)
      return load<BFloat16>(row + layout.rope_at() + (column - layout.kv_rank) * 2).to_float();
    scale = load<float>(row + layout.scales_at() + column / ops::kKvScaleColumns * 4);
  }
  return double{load<Float8E4M3>(row + column).to_float()} * double{scale};
}

void decode_kv_row(const ops::KvLayout& layout, const std::byte* row, float scale, int first, int count,
                   float* to) {
  DCHECK(layout.format() != ops::KvFormat::kWide, "a {} row is no row of codes", to_string(layout.dtype));
  for (int i = 0; i < count; ++i) to[i] = static_cast<float>(kv_element(layout, row, scale, first + i));
}

}  // namespace latent::kernels
