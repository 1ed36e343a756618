// SPDX-License-Identifier: Apache-2.0
// 16- and 8-bit floats as plain structs, with conversions that round to nearest even and keep NaN a NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "tensor/dtype.h"

namespace latent {

struct BFloat16 {
  uint16_t bits;

  static constexpr BFloat16 from_float(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
    return {static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16)};
  }
  constexpr float to_float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

struct Float16 {
  uint16_t bits;

  static Float16 from_float(float value);
  float to_float() const;
};

struct Float8E4M3 {
  uint8_t bits;

  // Saturates at 448; NaN stays NaN (0x7F with the sign).
  static Float8E4M3 from_float(float value);
  float to_float() const;
};

// 2^(bits - 127); 255 is NaN.
struct Float8E8M0 {
  uint8_t bits;

  constexpr float to_float() const {
    if (bits == 255) return std::bit_cast<float>(0x7FC00000u);
    if (bits == 0) return std::bit_cast<float>(0x00400000u);
    return std::bit_cast<float>(uint32_t{bits} << 23);
  }
};

// Uniform access for templates over element types.
inline float load_float(float x) { return x; }
inline float load_float(BFloat16 x) { return x.to_float(); }
inline float load_float(Float16 x) { return x.to_float(); }
inline float load_float(Float8E4M3 x) { return x.to_float(); }
inline void store_float(float* p, float x) { *p = x; }
inline void store_float(BFloat16* p, float x) { *p = BFloat16::from_float(x); }
inline void store_float(Float16* p, float x) { *p = Float16::from_float(x); }
inline void store_float(Float8E4M3* p, float x) { *p = Float8E4M3::from_float(x); }

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<Float8E4M3> {
  static constexpr DType value = DType::kF8E4M3;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};

// Half the distance between 1 and the next number: the relative error of one rounding.
constexpr double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0x1p-24;
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    case DType::kF8E4M3:
      return 0x1p-4;
    default:
      return 0;
  }
}

}  // namespace latent
