// SPDX-License-Identifier: Apache-2.0
// Sums of AVX-512 registers in the one order that all kernels share.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace latent::kernels::cpu {

namespace {  // compiled apart in each file that includes it: its instructions are that file's

inline float sum_lanes(__m512 v) {
  const __m256 by8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
}

// One level of a transposing tree: each adds the halves of a to each other, and those of b, and lays the sums
// side by side; the last level's order is the order of the arguments.
inline __m512 fold_by_8(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
}
inline __m512 fold_by_4(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}
inline __m512 fold_by_2(__m512 a, __m512 b) {
  const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                       _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}
inline __m512 fold_by_1(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD));
}

// Four tokens' registers of one weight row, folded to 128 bits each.
inline __m512 fold_tokens(const __m512 (&acc)[4][4], int row) {
  return fold_by_4(fold_by_8(acc[0][row], acc[1][row]), fold_by_8(acc[2][row], acc[3][row]));
}

// y[t * y_stride + r] = sum_lanes(acc[t][r]), with the same additions.
inline void store_tile_sums(const __m512 (&acc)[4][4], float* y, int64_t y_stride) {
  const __m512 sums = fold_by_1(fold_by_2(fold_tokens(acc, 0), fold_tokens(acc, 1)),
                                fold_by_2(fold_tokens(acc, 2), fold_tokens(acc, 3)));
  _mm_storeu_ps(y, _mm512_castps512_ps128(sums));
  _mm_storeu_ps(y + y_stride, _mm512_extractf32x4_ps(sums, 1));
  _mm_storeu_ps(y + 2 * y_stride, _mm512_extractf32x4_ps(sums, 2));
  _mm_storeu_ps(y + 3 * y_stride, _mm512_extractf32x4_ps(sums, 3));
}

}  // namespace

}  // namespace latent::kernels::cpu
