// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "kernels/cpu/matmul_f32.h"

namespace latent::kernels::cpu {
namespace {

// Sixteen lanes as two registers, so that sums have the bits that AVX-512 gives.
struct Avx2Lanes {
  struct Vec {
    __m256 low, high;
  };
  static constexpr int kTileRows = 2, kTileTokens = 2;

  static Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Vec broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static void store(float* p, Vec v) {
    _mm256_storeu_ps(p, v.low);
    _mm256_storeu_ps(p + 8, v.high);
  }
  static Vec mul(Vec a, Vec b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static Vec fma(Vec a, Vec b, Vec c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }

  static __m128i bytes16(const char* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
  static Vec load_bf16(const char* p) {
    const auto widen = [](__m128i b) {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(b), 16));
    };
    return {widen(bytes16(p)), widen(bytes16(p + 16))};
  }
  static Vec load_f16(const char* p) {
    return {_mm256_cvtph_ps(bytes16(p)), _mm256_cvtph_ps(bytes16(p + 16))};
  }
  // As in matmul_avx512.cc: the bits moved, then the difference of the biases.
  static Vec load_e4m3(const char* p) {
    const auto widen = [](__m128i codes) {
      const __m256i b = _mm256_cvtepu8_epi32(codes);
      const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(b, _mm256_set1_epi32(0x80)), 24);
      const __m256i rest = _mm256_slli_epi32(_mm256_and_si256(b, _mm256_set1_epi32(0x7F)), 20);
      return _mm256_mul_ps(_mm256_castsi256_ps(_mm256_or_si256(sign, rest)), _mm256_set1_ps(0x1p120f));
    };
    const __m128i codes = bytes16(p);
    return {widen(codes), widen(_mm_srli_si128(codes, 8))};
  }
  // Nearest even; a NaN keeps its upper bits and becomes quiet.
  static void store_bf16(char* p, Vec v) {
    const auto round16 = [](__m256 x) {
      const __m256i bits = _mm256_castps_si256(x);
      const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
      const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
      const __m256 quiet = _mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_set1_epi32(0x400000)));
      const __m256 kept =
          _mm256_blendv_ps(_mm256_castsi256_ps(rounded), quiet, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
      return _mm256_srli_epi32(_mm256_castps_si256(kept), 16);
    };
    const __m256i packed = _mm256_packus_epi32(round16(v.low), round16(v.high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xD8));
  }

  static float sum(Vec v) {
    const __m256 by8 = _mm256_add_ps(v.low, v.high);
    const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
    const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
    return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
  }
  static void store_sums(const Vec (&acc)[kTileTokens][kTileRows], float* y, int64_t y_stride) {
    for (int t = 0; t < kTileTokens; ++t)
      for (int r = 0; r < kTileRows; ++r) y[t * y_stride + r] = sum(acc[t][r]);
  }
};

}  // namespace

const MatmulKernels& avx2_f32_kernels(WeightFormat format) { return f32_kernels<Avx2Lanes>(format); }

}  // namespace latent::kernels::cpu
