// SPDX-License-Identifier: Apache-2.0
// e4m3 codes on a GPU; kernels/kv_row.h has the same on a CPU.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "attention/backends/cuda_common/code_row.h"

namespace latent::attention::cuda {

// Weights that multiply codes are 2^kLogWeightLift times as large, which keeps the small ones above f16's
// subnormal numbers.
inline constexpr int kLogWeightLift = 14;
// Weights of blocks take the scales, in units of the largest so far: the bits of powers of two from 2^-100 to
// 2^100; a scale is less than two of its unit.
inline constexpr uint32_t kLeastUnit = 27u << 23, kLargestUnit = 227u << 23;
// 2^kLogWeightLift / unit
__device__ inline float lift_of(uint32_t unit) {
  return __uint_as_float(((254u + kLogWeightLift) << 23) - unit);
}
// What an output is multiplied by when its unit grows.
__device__ inline float unit_ratio(uint32_t old_unit, uint32_t unit) {
  const uint32_t steps = (unit - old_unit) >> 23;
  return steps > 126 ? 0.0f : __uint_as_float((127 - steps) << 23);
}

// The power of two that brings the largest magnitude of a query's row to 2^14 or a little more, and its
// inverse: as f16, products with codes, added up, stay far from the end of fp32.
struct QueryLift {
  float lift, drop;
  __device__ explicit QueryLift(float largest) {
    const uint32_t exponent = min(max(__float_as_uint(largest) >> 23, 15u), 254u);
    lift = __uint_as_float((268u - exponent) << 23);
    drop = __uint_as_float((exponent - 14u) << 23);
  }
};

inline constexpr float kLargestCode = 448;

// Non-finite values become NaN; finite ones saturate.
__device__ inline uint32_t encode(float x, float scale) {
  const uint32_t code = __nv_cvt_float_to_fp8(__fdiv_rn(x, scale), __NV_SATFINITE, __NV_E4M3);
  return isfinite(x) ? code : 0x7F | (__float_as_uint(x) >> 31) << 7;
}

__device__ inline uint32_t encode4(float a, float b, float c, float d, float scale) {
  return encode(a, scale) | encode(b, scale) << 8 | encode(c, scale) << 16 | encode(d, scale) << 24;
}

// Codes 2 * kHalf and 2 * kHalf + 1 of a word as two f16, exactly; NaN stays NaN.
template <int kHalf>
__device__ inline uint32_t decode2(uint32_t codes) {
#if __CUDA_ARCH__ >= 890
  const auto pair = static_cast<uint16_t>(codes >> (16 * kHalf));
  uint32_t two;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"(pair));
  return two;
#else
  // The exponent of e4m3 in the place of f16's, which is 8 more: then times 2^8. Only NaN comes out as a
  // number.
  const uint32_t spread = __byte_perm(codes, 0, kHalf == 0 ? 0x1404 : 0x3424);
  const uint32_t moved = (spread & 0x80008000u) | (spread >> 1 & 0x3F803F80u);
  __half2 two = __hmul2(*reinterpret_cast<const __half2*>(&moved), __float2half2_rn(256.0f));
  uint32_t bits = *reinterpret_cast<const uint32_t*>(&two);
  if ((spread & 0x7F00u) == 0x7F00u) bits |= 0x7FFFu;
  if ((spread & 0x7F000000u) == 0x7F000000u) bits |= 0x7FFF0000u;
  return bits;
#endif
}

template <int kHalf>
__device__ inline float2 decode2_float(uint32_t codes) {
  const uint32_t two = decode2<kHalf>(codes);
  return __half22float2(*reinterpret_cast<const __half2*>(&two));
}

}  // namespace latent::attention::cuda
