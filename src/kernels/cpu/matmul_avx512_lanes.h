// SPDX-License-Identifier: Apache-2.0
// Sums of AVX-512 registers in the one order that all kernels share.
#pragma once

#include <immintrin.h>

namespace latent::kernels::cpu {

namespace {  // compiled apart in each file that includes it: its instructions are that file's

inline float sum_lanes(__m512 v) {
  const __m256 by8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
}

// y[t * y_stride + r] = sum_lanes(acc[t][r]) for four tokens and up to four rows: a transposing tree with the
// same additions.
template <int kRows>
inline void store_tile_sums(const __m512 (&acc)[4][kRows], float* y, int64_t y_stride) {
  // The tree leaves the sum of v[i + {0, 8, 4, 12}[block]] at place {0, 2, 1, 3}[i] of each 128-bit block.
  constexpr int kTokenAt[4] = {0, 2, 1, 3}, kRowAt[4] = {0, 2, 1, 3};
  __m512 v[16];
  for (int t = 0; t < 4; ++t)
    for (int r = 0; r < 4; ++r)
      v[kTokenAt[t] * 4 + kRowAt[r]] = r < kRows ? acc[t][r < kRows ? r : 0] : _mm512_setzero_ps();
  for (int i = 0; i < 8; ++i)
    v[i] =
        _mm512_add_ps(_mm512_shuffle_f32x4(v[i], v[i + 8], 0x44), _mm512_shuffle_f32x4(v[i], v[i + 8], 0xEE));
  for (int i = 0; i < 4; ++i)
    v[i] =
        _mm512_add_ps(_mm512_shuffle_f32x4(v[i], v[i + 4], 0x88), _mm512_shuffle_f32x4(v[i], v[i + 4], 0xDD));
  for (int i = 0; i < 2; ++i) {
    const __m512d a = _mm512_castps_pd(v[i]), b = _mm512_castps_pd(v[i + 2]);
    v[i] =
        _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  const __m512 sums = _mm512_add_ps(_mm512_shuffle_ps(v[0], v[1], 0x88), _mm512_shuffle_ps(v[0], v[1], 0xDD));
  const __mmask8 rows = static_cast<__mmask8>((1 << kRows) - 1);
  _mm_mask_storeu_ps(y, rows, _mm512_castps512_ps128(sums));
  _mm_mask_storeu_ps(y + y_stride, rows, _mm512_extractf32x4_ps(sums, 1));
  _mm_mask_storeu_ps(y + 2 * y_stride, rows, _mm512_extractf32x4_ps(sums, 2));
  _mm_mask_storeu_ps(y + 3 * y_stride, rows, _mm512_extractf32x4_ps(sums, 3));
}

}  // namespace

}  // namespace latent::kernels::cpu
