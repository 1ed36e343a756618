// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "builtins.h"

struct __half {
  latent::Float16 x;
};
struct __half2 {
  __half x, y;
};
inline float __half2float(__half x) { return x.x.to_float(); }
inline __half __float2half_rn(float x) { return {latent::Float16::from_float(x)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline float2 __half22float2(__half2 x) { return {__half2float(x.x), __half2float(x.y)}; }
inline __half2 __float2half2_rn(float x) { return __floats2half2_rn(x, x); }
inline __half2 __hmul2(__half2 a, __half2 b) {
  return __floats2half2_rn(__half2float(a.x) * __half2float(b.x), __half2float(a.y) * __half2float(b.y));
}
