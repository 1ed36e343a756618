// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/cpu/matmul_avx512_lanes.h"
#include "kernels/cpu/matmul_f32.h"

namespace latent::kernels::cpu {
namespace {

struct Avx512Lanes {
  using Vec = __m512;
  static constexpr int kTileRows = 4, kTileTokens = 4;

  static Vec zero() { return _mm512_setzero_ps(); }
  static Vec broadcast(float x) { return _mm512_set1_ps(x); }
  static Vec load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
  static Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  static Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }

  static Vec load_bf16(const char* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static Vec load_f16(const char* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  // Exponent and mantissa moved to where f32 has them, then the difference of the biases: 2^(127 - 7). Exact,
  // and subnormals come out right; the two NaN codes do not (a loaded weight holds none).
  static Vec load_e4m3(const char* p) {
    const __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(b, _mm512_set1_epi32(0x80)), 24);
    const __m512i rest = _mm512_slli_epi32(_mm512_and_si512(b, _mm512_set1_epi32(0x7F)), 20);
    return mul(_mm512_castsi512_ps(_mm512_or_si512(sign, rest)), broadcast(0x1p120f));
  }
  // Nearest even; a NaN keeps its upper bits and becomes quiet.
  static void store_bf16(char* p, Vec v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
  }

  static float sum(Vec v) { return sum_lanes(v); }
  static void store_sums(const Vec (&acc)[kTileTokens][kTileRows], float* y, int64_t y_stride) {
    store_tile_sums(acc, y, y_stride);
  }
};

}  // namespace

const MatmulKernels& avx512_f32_kernels(WeightFormat format) { return f32_kernels<Avx512Lanes>(format); }

}  // namespace latent::kernels::cpu
