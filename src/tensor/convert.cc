// SPDX-License-Identifier: Apache-2.0
#include "tensor/convert.h"

#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/float_types.h"

namespace latent {

Float16 Float16::from_float(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const uint32_t magnitude = u & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<uint16_t>(sign | 0x7E00u)};
  if (magnitude >= 0x477FF000u) return {static_cast<uint16_t>(sign | 0x7C00u)};  // rounds to 65536
  if (magnitude < 0x38800000u) {  // subnormal: the addend aligns the mantissa and rounds
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000u))};
  }
  const uint32_t rounded = magnitude + 0x0FFFu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

float Float16::to_float() const {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

Float8E4M3 Float8E4M3::from_float(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint8_t sign = static_cast<uint8_t>((u >> 24) & 0x80u);
  const uint32_t magnitude = u & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<uint8_t>(sign | 0x7Fu)};
  if (magnitude >= 0x43E80000u) return {static_cast<uint8_t>(sign | 0x7Eu)};  // 464 and more: 448
  if (magnitude < 0x3C800000u) {                                              // below 2^-6: steps of 2^-9
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return {static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) & 0xFFu))};
  }
  const uint32_t rounded = magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u);
  return {static_cast<uint8_t>(sign | ((rounded - 0x3C000000u) >> 20))};
}

namespace {

constexpr std::array<float, 256> make_e4m3_table() {
  std::array<float, 256> table{};
  for (uint32_t b = 0; b < 256; ++b) {
    const uint32_t exponent = (b >> 3) & 15, mantissa = b & 7;
    float magnitude = 0;
    if (exponent == 0)
      magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    else
      magnitude = std::bit_cast<float>(((exponent + 120) << 23) | (mantissa << 20));
    if ((b & 0x7F) == 0x7F) magnitude = std::bit_cast<float>(0x7FC00000u);
    table[b] = (b & 0x80) != 0 ? -magnitude : magnitude;
  }
  return table;
}

constexpr std::array<float, 256> kE4M3 = make_e4m3_table();

template <class T>
void to_float_array(const void* src, float* dst, int64_t count) {
  const T* p = static_cast<const T*>(src);
  for (int64_t i = 0; i < count; ++i) dst[i] = p[i].to_float();
}

template <class T>
void from_float_array(const float* src, void* dst, int64_t count) {
  T* p = static_cast<T*>(dst);
  for (int64_t i = 0; i < count; ++i) p[i] = T::from_float(src[i]);
}

void widen(const void* src, DType dtype, float* dst, int64_t count) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(dst, src, static_cast<size_t>(count) * 4);
      return;
    case DType::kF16:
      return to_float_array<Float16>(src, dst, count);
    case DType::kBF16:
      return to_float_array<BFloat16>(src, dst, count);
    case DType::kF8E4M3:
      return to_float_array<Float8E4M3>(src, dst, count);
    case DType::kF8E8M0:
      return to_float_array<Float8E8M0>(src, dst, count);
    default:
      CHECK(false, "cannot read {} as floats", to_string(dtype));
  }
}

void narrow(const float* src, void* dst, DType dtype, int64_t count) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(dst, src, static_cast<size_t>(count) * 4);
      return;
    case DType::kF16:
      return from_float_array<Float16>(src, dst, count);
    case DType::kBF16:
      return from_float_array<BFloat16>(src, dst, count);
    case DType::kF8E4M3:
      return from_float_array<Float8E4M3>(src, dst, count);
    default:
      CHECK(false, "cannot write floats as {}", to_string(dtype));
  }
}

// Index of the first element whose masked bits are at or above `limit`.
template <class Bits>
std::optional<int64_t> find_masked(const void* data, int64_t count, Bits mask, Bits limit) {
  const Bits* p = static_cast<const Bits*>(data);
  constexpr int64_t kBlock = 4096;  // the inner loop has no exit, so that it vectorises
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = begin + kBlock < count ? begin + kBlock : count;
    Bits worst = 0;
    for (int64_t i = begin; i < end; ++i) {
      const Bits b = static_cast<Bits>(p[i] & mask);
      worst = b > worst ? b : worst;
    }
    if (worst < limit) continue;
    for (int64_t i = begin; i < end; ++i)
      if (static_cast<Bits>(p[i] & mask) >= limit) return i;
  }
  return std::nullopt;
}

}  // namespace

float Float8E4M3::to_float() const { return kE4M3[bits]; }

void convert_elements(const void* src, DType src_dtype, void* dst, DType dst_dtype, int64_t count) {
  if (src_dtype == dst_dtype) {
    std::memmove(dst, src, static_cast<size_t>(count) * dtype_bytes(src_dtype));
    return;
  }
  constexpr int64_t kChunk = 1024;
  float chunk[kChunk];
  const auto* from = static_cast<const std::byte*>(src);
  auto* to = static_cast<std::byte*>(dst);
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t n = count - begin < kChunk ? count - begin : kChunk;
    widen(from + begin * static_cast<int64_t>(dtype_bytes(src_dtype)), src_dtype, chunk, n);
    narrow(chunk, to + begin * static_cast<int64_t>(dtype_bytes(dst_dtype)), dst_dtype, n);
  }
}

std::optional<int64_t> find_non_finite(const void* data, DType dtype, int64_t count) {
  switch (dtype) {
    case DType::kF32:
      return find_masked<uint32_t>(data, count, 0x7FFFFFFFu, 0x7F800000u);
    case DType::kF16:
      return find_masked<uint16_t>(data, count, 0x7FFF, 0x7C00);
    case DType::kBF16:
      return find_masked<uint16_t>(data, count, 0x7FFF, 0x7F80);
    case DType::kF8E4M3:
      return find_masked<uint8_t>(data, count, 0x7F, 0x7F);
    case DType::kF8E8M0:
      return find_masked<uint8_t>(data, count, 0xFF, 0xFF);
    default:
      return std::nullopt;
  }
}

float element_to_float(const void* data, DType dtype, int64_t index) {
  if (dtype == DType::kI32) return static_cast<float>(static_cast<const int32_t*>(data)[index]);
  float value = 0;
  widen(static_cast<const std::byte*>(data) + index * static_cast<int64_t>(dtype_bytes(dtype)), dtype, &value,
        1);
  return value;
}

}  // namespace latent
