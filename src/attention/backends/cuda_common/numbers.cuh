// SPDX-License-Identifier: Apache-2.0
// Conversions and constants that the kernels share.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace latent::attention::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr float kLn2 = 0.6931471805599453f;

__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }
template <class T>
__device__ inline T from_float(float x);
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline __half from_float<__half>(float x) {
  return __float2half_rn(x);
}

// Two numbers as neighbours in a register, `low` first in memory.
template <class T>
__device__ inline uint32_t pack(float low, float high);
template <>
__device__ inline uint32_t pack<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 x = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&x);
}
template <>
__device__ inline uint32_t pack<__half>(float low, float high) {
  const __half2 x = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&x);
}

// The numbers of pack().
template <class T>
__device__ inline float2 unpack(uint32_t x);
template <>
__device__ inline float2 unpack<__nv_bfloat16>(uint32_t x) {
  return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xFFFF0000u));
}
template <>
__device__ inline float2 unpack<__half>(uint32_t x) {
  return __half22float2(*reinterpret_cast<const __half2*>(&x));
}

// mine * a + other * b, rounded the same way whichever side does it.
__device__ inline float join(float mine, float a, float other, float b, bool mine_is_left) {
  return mine_is_left ? __fmaf_rn(mine, a, __fmul_rn(other, b)) : __fmaf_rn(other, b, __fmul_rn(mine, a));
}

// Rows keep their maximum until one outgrows it by this much in base 2: the weights stay far from overflow in
// fp16, too, and outputs are seldom rescaled. Each row decides for itself, so that its bits do not depend on
// its neighbours.
inline constexpr float kMaxSlack = 8;

// Swaps registers among four neighbouring lanes: register i of lane q comes from register q of lane i.
__device__ inline void transpose_quad(uint32_t (&x)[4]) {
  const int lane = threadIdx.x % 4;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = lane & bit;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int low = bit == 1 ? 2 * pair : pair, high = low + bit;
      const uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, upper ? x[low] : x[high], bit);
      x[low] = upper ? got : x[low];
      x[high] = upper ? x[high] : got;
    }
  }
}

}  // namespace latent::attention::cuda
