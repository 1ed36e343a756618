// SPDX-License-Identifier: Apache-2.0
// Sixteen floats as one value, for the instruction set that the including file is built for. In an unnamed
// namespace: every file has its own, so that no function built for one machine is linked into another.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "tensor/float_types.h"

namespace latent::attention::cpu {
namespace {

#if defined(__AVX512F__)

struct F32x16 {
  __m512 v;
};
constexpr int kScoreTokens = 16;  // accumulators of a score tile
constexpr int kValueLanes = 8;    // lanes of a value tile, two vectors wide

inline F32x16 set1(float x) { return {_mm512_set1_ps(x)}; }
inline F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline F32x16 load(const BFloat16* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline F32x16 load(const Float16* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline void store(float* p, F32x16 a) { _mm512_storeu_ps(p, a.v); }
inline F32x16 operator+(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32x16 operator-(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32x16 operator*(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// The larger; b if a is NaN.
inline F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 yes, F32x16 no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
}
// value * 2^n where the low bits of `bits` hold n.
inline F32x16 times_power(F32x16 value, F32x16 bits) {
  const __m512i shifted = _mm512_slli_epi32(_mm512_castps_si512(bits.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(value.v), shifted))};
}

// Rows of 16 dwords become columns.
inline void transpose(F32x16 (&r)[16], float* out) {
  __m512 a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_ps(r[i].v, r[i + 1].v);
    a[i + 1] = _mm512_unpackhi_ps(r[i].v, r[i + 1].v);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const __m512d x = _mm512_castps_pd(a[i + j]), y = _mm512_castps_pd(a[i + 2 + j]);
      b[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
      b[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
    }
  }
  // b[4 g + c] holds, in its 128-bit part q, column 4 q + c of rows 4 g to 4 g + 3.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 low01 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x44);
    const __m512 high01 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xEE);
    const __m512 low23 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x44);
    const __m512 high23 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xEE);
    _mm512_storeu_ps(out + c * 16, _mm512_shuffle_f32x4(low01, low23, 0x88));
    _mm512_storeu_ps(out + (4 + c) * 16, _mm512_shuffle_f32x4(low01, low23, 0xDD));
    _mm512_storeu_ps(out + (8 + c) * 16, _mm512_shuffle_f32x4(high01, high23, 0x88));
    _mm512_storeu_ps(out + (12 + c) * 16, _mm512_shuffle_f32x4(high01, high23, 0xDD));
  }
}

#elif defined(__AVX2__)

struct F32x16 {
  __m256 low, high;
};
constexpr int kScoreTokens = 4;
constexpr int kValueLanes = 2;

inline F32x16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline __m256 load_half(const BFloat16* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
inline F32x16 load(const BFloat16* p) { return {load_half(p), load_half(p + 8)}; }
inline F32x16 load(const Float16* p) {
  const auto* halves = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
inline void store(float* p, F32x16 a) {
  _mm256_storeu_ps(p, a.low);
  _mm256_storeu_ps(p + 8, a.high);
}
inline F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline F32x16 max(F32x16 a, F32x16 b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 yes, F32x16 no) {
  return {_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
inline __m256 times_power_half(__m256 value, __m256 bits) {
  const __m256i shifted = _mm256_slli_epi32(_mm256_castps_si256(bits), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(value), shifted));
}
inline F32x16 times_power(F32x16 value, F32x16 bits) {
  return {times_power_half(value.low, bits.low), times_power_half(value.high, bits.high)};
}

#else

typedef float Float16Lanes __attribute__((vector_size(64)));
typedef uint32_t Word16Lanes __attribute__((vector_size(64)));
struct F32x16 {
  Float16Lanes v;
};
constexpr int kScoreTokens = 4;
constexpr int kValueLanes = 1;

inline F32x16 load(const float* p) {
  F32x16 r;
  std::memcpy(&r.v, p, sizeof r.v);
  return r;
}
inline F32x16 load(const BFloat16* p) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = p[i].to_float();
  return r;
}
inline F32x16 load(const Float16* p) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = p[i].to_float();
  return r;
}
inline F32x16 set1(float x) { return {x - Float16Lanes{}}; }
inline void store(float* p, F32x16 a) { std::memcpy(p, &a.v, sizeof a.v); }
inline F32x16 operator+(F32x16 a, F32x16 b) { return {a.v + b.v}; }
inline F32x16 operator-(F32x16 a, F32x16 b) { return {a.v - b.v}; }
inline F32x16 operator*(F32x16 a, F32x16 b) { return {a.v * b.v}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {a.v * b.v + c.v}; }
inline F32x16 max(F32x16 a, F32x16 b) { return {a.v > b.v ? a.v : b.v}; }
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 yes, F32x16 no) { return {a.v < b.v ? yes.v : no.v}; }
inline F32x16 times_power(F32x16 value, F32x16 bits) {
  Word16Lanes v, b;
  std::memcpy(&v, &value.v, sizeof v);
  std::memcpy(&b, &bits.v, sizeof b);
  v += b << 23;
  std::memcpy(&value.v, &v, sizeof v);
  return value;
}

#endif

#if !defined(__AVX512F__)
inline void transpose(F32x16 (&r)[16], float* out) {
  float rows[16][16];
  for (int i = 0; i < 16; ++i) store(rows[i], r[i]);
  for (int c = 0; c < 16; ++c)
    for (int i = 0; i < 16; ++i) out[c * 16 + i] = rows[i][c];
}
#endif

// exp(x) for x <= 0 with a relative error below 4 * 2^-24; 0 below -87 and at -inf; NaN stays NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) by its series, whose first term left out is r^8 / 8! < 6e-9.
inline F32x16 exp_non_positive(F32x16 x) {
  const F32x16 magic = set1(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, kept in the low bits
  const F32x16 bits = fma(x, set1(1.44269504f), magic);
  const F32x16 n = bits - magic;
  F32x16 r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440e-4f), r);
  F32x16 sum = set1(1.0f / 5040);
  for (const float coefficient : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 1.0f / 2, 1.0f, 1.0f})
    sum = fma(sum, r, set1(coefficient));
  return select_less(x, set1(-87.0f), set1(0.0f), times_power(sum, bits));
}

}  // namespace
}  // namespace latent::attention::cpu
