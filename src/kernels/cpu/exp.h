// SPDX-License-Identifier: Apache-2.0
// exp and what is made of it, for loops that the compiler vectorises: no branch, no call, no table. Always
// inlined, so that files built for different instruction sets never share a copy.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace latent::kernels::cpu {

template <class T>
struct ExpTraits;
template <>
struct ExpTraits<float> {
  using Int = int32_t;
  static constexpr int kMantissaBits = 23;
  static constexpr Int kExponentBias = 127;
  static constexpr float kLowest = -87.0f;           // e^x stays normal
  static constexpr float kLn2High = 0x1.62e4p-1f;    // 15 bits: n * kLn2High is exact
  static constexpr float kLn2Low = 0x1.7f7d1cp-20f;  // ln 2 - kLn2High
  static constexpr int kDegree = 7;                  // |r| <= ln(2) / 2: r^8 / 8! < 2^-27
};
template <>
struct ExpTraits<double> {
  using Int = int64_t;
  static constexpr int kMantissaBits = 52;
  static constexpr Int kExponentBias = 1023;
  static constexpr double kLowest = -708.0;
  static constexpr double kLn2High = 0x1.62e42fefap-1;
  static constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;
  static constexpr int kDegree = 13;  // r^14 / 14! < 2^-57
};

// 1 / k!
template <class T>
constexpr T inverse_factorial(int k) {
  double product = 1;
  for (int i = 2; i <= k; ++i) product *= i;
  return static_cast<T>(1 / product);
}

// e^x for x <= 0 within 2 ulp: e^x = 2^n e^r with n = round(x / ln 2), e^r by its Taylor series. Below
// kLowest e^kLowest is returned; NaN stays NaN.
template <class T>
[[gnu::always_inline]] inline T exp_of_negative(T x) {
  using Traits = ExpTraits<T>;
  using Int = typename Traits::Int;
  constexpr T kRound = static_cast<T>(Int{3} << (Traits::kMantissaBits - 1));  // adding it rounds to integer
  x = x < Traits::kLowest ? Traits::kLowest : x;
  const T shifted = std::fma(x, static_cast<T>(1.4426950408889634), kRound);
  const T n = shifted - kRound;
  const T r = std::fma(n, -Traits::kLn2Low, std::fma(n, -Traits::kLn2High, x));
  T series = inverse_factorial<T>(Traits::kDegree);
#pragma GCC unroll 16
  for (int k = Traits::kDegree - 1; k >= 0; --k) series = std::fma(series, r, inverse_factorial<T>(k));
  const Int exponent = std::bit_cast<Int>(shifted) - std::bit_cast<Int>(kRound) + Traits::kExponentBias;
  return series * std::bit_cast<T>(static_cast<Int>(exponent << Traits::kMantissaBits));
}

// Never overflows; below kLowest it stays at e^kLowest.
template <class T>
[[gnu::always_inline]] inline T sigmoid(T x) {
  const T e = exp_of_negative(-std::abs(x));
  return (x < 0 ? e : T{1}) / (1 + e);
}

template <class T>
[[gnu::always_inline]] inline T silu(T x) {
  return x * sigmoid(x);
}

}  // namespace latent::kernels::cpu
