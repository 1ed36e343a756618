// SPDX-License-Identifier: Apache-2.0
#include "tensor/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tensor/float_types.h"

namespace latent {
namespace {

// Every value of a small float type converts to fp32 and back to the same bits.
template <class T, class Bits>
void expect_round_trip(Bits last) {
  for (uint32_t b = 0; b <= last; ++b) {
    const T x{static_cast<Bits>(b)};
    const float f = x.to_float();
    const T back = T::from_float(f);
    if (std::isnan(f))
      EXPECT_TRUE(std::isnan(back.to_float())) << b;
    else
      EXPECT_EQ(back.bits, x.bits) << b;
  }
}

TEST(Convert, every_small_float_survives_a_round_trip) {
  expect_round_trip<BFloat16, uint16_t>(0xFFFF);
  expect_round_trip<Float16, uint16_t>(0xFFFF);
  expect_round_trip<Float8E4M3, uint8_t>(0xFF);
}

// The midpoint between two neighbours goes to the even one; a hair beyond goes away from it.
template <class T, class Bits>
void expect_nearest_even(Bits first, Bits last) {
  for (uint32_t b = first; b < last; ++b) {
    const float low = T{static_cast<Bits>(b)}.to_float(), high = T{static_cast<Bits>(b + 1)}.to_float();
    const float middle = low + (high - low) / 2;
    EXPECT_EQ(T::from_float(middle).bits, (b & 1u) != 0 ? b + 1 : b);
    EXPECT_EQ(T::from_float(std::nextafter(middle, high)).bits, b + 1);
    EXPECT_EQ(T::from_float(std::nextafter(middle, low)).bits, b);
  }
}

TEST(Convert, rounding_is_to_nearest_even) {
  expect_nearest_even<BFloat16, uint16_t>(0, 0x7F7F);
  expect_nearest_even<Float16, uint16_t>(0, 0x7BFF);
  expect_nearest_even<Float8E4M3, uint8_t>(0, 0x7E);
}

TEST(Convert, e4m3_saturates_and_keeps_nan) {
  EXPECT_EQ(Float8E4M3::from_float(1e9f).to_float(), 448.0f);
  EXPECT_EQ(Float8E4M3::from_float(-INFINITY).to_float(), -448.0f);
  EXPECT_TRUE(std::isnan(Float8E4M3::from_float(NAN).to_float()));
}

TEST(Convert, e8m0_is_a_power_of_two) {
  EXPECT_EQ(Float8E8M0{127}.to_float(), 1.0f);
  EXPECT_EQ(Float8E8M0{0}.to_float(), 0x1p-127f);
  EXPECT_EQ(Float8E8M0{254}.to_float(), 0x1p127f);
  EXPECT_TRUE(std::isnan(Float8E8M0{255}.to_float()));
}

// contract: C6
TEST(Convert, the_first_non_finite_element_is_found_wherever_it_is) {
  for (const int64_t count : {1, 7, 4096, 4097, 10000}) {
    for (const int64_t at : {int64_t{0}, count / 2, count - 1}) {
      std::vector<float> f(static_cast<size_t>(count), -3.0f);
      EXPECT_EQ(find_non_finite(f.data(), DType::kF32, count), std::nullopt);
      f[static_cast<size_t>(at)] = -INFINITY;
      EXPECT_EQ(find_non_finite(f.data(), DType::kF32, count), at);
      std::vector<BFloat16> b(static_cast<size_t>(count), BFloat16::from_float(1e38f));
      EXPECT_EQ(find_non_finite(b.data(), DType::kBF16, count), std::nullopt);
      b[static_cast<size_t>(at)] = BFloat16{0xFFC0};
      EXPECT_EQ(find_non_finite(b.data(), DType::kBF16, count), at);
    }
  }
}

}  // namespace
}  // namespace latent
