// SPDX-License-Identifier: Apache-2.0
#include "device/poison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace latent {
namespace {

template <class T>
std::vector<T> filled(ElementKind kind, PoisonPattern pattern) {
  std::vector<T> values(5, T{});
  fill_poison(values.data(), values.size() * sizeof(T), kind, pattern);
  return values;
}

TEST(Poison, floats_hold_the_pattern) {
  for (const float v : filled<float>(ElementKind::kFloat32, PoisonPattern::kNan)) EXPECT_TRUE(std::isnan(v));
  for (const float v : filled<float>(ElementKind::kFloat32, PoisonPattern::kInf)) EXPECT_EQ(v, INFINITY);
  for (const float v : filled<float>(ElementKind::kFloat32, PoisonPattern::kLarge)) {
    EXPECT_TRUE(std::isfinite(v));
    EXPECT_GT(v, 1e37f);
  }
}

// The 16- and 8-bit formats by their bits: exponent all ones is NaN or Inf (e4m3: 0x7F alone is NaN).
TEST(Poison, small_floats_hold_the_pattern) {
  EXPECT_EQ(filled<uint16_t>(ElementKind::kBFloat16, PoisonPattern::kNan)[4], 0x7FC0);
  EXPECT_EQ(filled<uint16_t>(ElementKind::kBFloat16, PoisonPattern::kInf)[4], 0x7F80);
  EXPECT_LT(filled<uint16_t>(ElementKind::kBFloat16, PoisonPattern::kLarge)[4], 0x7F80);
  EXPECT_EQ(filled<uint16_t>(ElementKind::kFloat16, PoisonPattern::kInf)[4], 0x7C00);
  EXPECT_LT(filled<uint16_t>(ElementKind::kFloat16, PoisonPattern::kLarge)[4], 0x7C00);
  EXPECT_EQ(filled<uint8_t>(ElementKind::kFloat8E4M3, PoisonPattern::kNan)[4], 0x7F);
  EXPECT_LT(filled<uint8_t>(ElementKind::kFloat8E4M3, PoisonPattern::kInf)[4], 0x7F);
}

// contract: C3 C7
TEST(Poison, ids_are_the_largest_integer_under_every_pattern) {
  for (const PoisonPattern p : {PoisonPattern::kNan, PoisonPattern::kInf, PoisonPattern::kLarge})
    for (const int32_t id : filled<int32_t>(ElementKind::kInt32, p)) EXPECT_EQ(id, INT32_MAX);
}

TEST(Poison, none_writes_nothing) {
  for (const float v : filled<float>(ElementKind::kFloat32, PoisonPattern::kNone)) EXPECT_EQ(v, 0.0f);
}

TEST(Poison, a_tail_is_filled_and_nothing_past_it) {
  unsigned char bytes[8] = {};
  fill_poison(bytes, 7, ElementKind::kFloat32, PoisonPattern::kNan);
  const uint32_t nan = 0x7FC00000;
  EXPECT_EQ(std::memcmp(bytes, &nan, 4), 0);
  EXPECT_EQ(std::memcmp(bytes + 4, &nan, 3), 0);
  EXPECT_EQ(bytes[7], 0);
}

TEST(Poison, names_are_read_as_they_are_printed) {
  for (const PoisonPattern p :
       {PoisonPattern::kNone, PoisonPattern::kNan, PoisonPattern::kInf, PoisonPattern::kLarge})
    EXPECT_EQ(parse_poison(to_string(p)), p);
  EXPECT_EQ(parse_poison("NaN"), std::nullopt);
}

}  // namespace
}  // namespace latent
