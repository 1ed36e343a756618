// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic that never overflows silently.
#pragma once

#include <concepts>
#include <cstdint>

namespace latent {

template <std::integral T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

template <std::integral T>
constexpr T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}

template <std::integral T>
constexpr bool is_power_of_two(T a) {
  return a > 0 && (a & (a - 1)) == 0;
}

// False when a * b does not fit; *product is then untouched. For sizes that come from a file.
constexpr bool checked_mul(int64_t a, int64_t b, int64_t* product) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return false;
  *product = result;
  return true;
}

constexpr bool checked_add(int64_t a, int64_t b, int64_t* sum) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) return false;
  *sum = result;
  return true;
}

}  // namespace latent
