// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "builtins.h"

struct __nv_bfloat16 {
  latent::BFloat16 x;
};
struct __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline float __bfloat162float(__nv_bfloat16 x) { return x.x.to_float(); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {latent::BFloat16::from_float(x)}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
