// SPDX-License-Identifier: Apache-2.0
// Rows of quantised caches, and the reference kernel that writes them.
#include "kernels/kv_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/registry.h"
#include "tensor/convert.h"
#include "tensor/float_types.h"
#include "testing/random.h"

namespace latent::kernels {
namespace {

using testing::Random;
using testing::test_seed;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float decode(int code) { return Float8E4M3{static_cast<uint8_t>(code)}.to_float(); }

TEST(KvRow, every_code_comes_back_as_itself_whatever_the_scale) {
  for (const float scale : {1.0f, 0.0109f, 3.7f, 0x1p-120f, 0x1p100f})
    for (int code = 0; code < 256; ++code) {
      const float value = decode(code) * scale;  // 8 bits of significand at most: one rounding cannot move it
      const int back = encode_e4m3(value, scale).bits;
      if (code % 128 == 127)
        EXPECT_EQ(back % 128, 127);
      else
        EXPECT_EQ(back, code) << "scale " << scale;  // -0 keeps its sign
    }
}

// Every pair of neighbours, in both signs: the middle goes to the even code, what lies beside it to the
// nearer one.
TEST(KvRow, ties_go_to_the_even_code) {
  for (const int sign : {0, 128})
    for (int code = 0; code < 126; ++code) {
      const float low = decode(code), high = decode(code + 1), middle = (low + high) / 2;  // exact
      const float way = sign == 0 ? 1.0f : -1.0f;
      EXPECT_EQ(encode_e4m3(way * middle, 1).bits, sign + (code % 2 == 0 ? code : code + 1));
      EXPECT_EQ(encode_e4m3(way * std::nextafter(middle, 0.0f), 1).bits, sign + code);
      EXPECT_EQ(encode_e4m3(way * std::nextafter(middle, kInf), 1).bits, sign + code + 1);
    }
}

// contract: C16
TEST(KvRow, finite_values_saturate_and_others_are_not_hidden) {
  for (const float scale : {0.25f, 1.0f, 3.7f}) {
    for (const float value : {450 * scale, 464 * scale, 1e30f * scale, std::numeric_limits<float>::max()}) {
      EXPECT_EQ(encode_e4m3(value, scale).bits, 0x7E);
      EXPECT_EQ(encode_e4m3(-value, scale).bits, 0xFE);
    }
    for (const float value : {kInf, -kInf, kNan, -kNan})
      EXPECT_EQ(encode_e4m3(value, scale).bits & 0x7F, 0x7F);
  }
  EXPECT_EQ(encode_e4m3(1.0f, std::numeric_limits<float>::min()).bits, 0x7E);  // the quotient overflows
}

TEST(KvRow, a_block_scale_is_that_of_its_largest_finite_value) {
  float values[4] = {1, -896, 3, 0};
  EXPECT_EQ(block_scale(values, 4), 2.0f);
  values[0] = kInf;
  values[2] = kNan;
  EXPECT_EQ(block_scale(values, 4), 2.0f);
  EXPECT_EQ(block_scale(values + 3, 1), std::numeric_limits<float>::min());
}

struct Rows {
  explicit Rows(DType dtype) : layout{.dtype = dtype} {}
  ops::KvLayout layout;
  std::vector<float> values = std::vector<float>(576);
  std::vector<std::byte> bytes;

  std::vector<float> through(float scale) {
    bytes.assign(static_cast<size_t>(layout.token_bytes()), std::byte{0xFF});
    encode_kv_columns(layout, values.data(), 0, 576, scale, bytes.data());
    std::vector<float> back(576);
    decode_kv_row(layout, bytes.data(), scale, 0, 576, back.data());
    return back;
  }
};

// B2: a small latent beside rope keys of order one.
TEST(KvRow, values_come_back_within_half_a_step_and_rope_keys_of_the_656_bytes_exactly) {
  for (const DType dtype : {DType::kF8E4M3, DType::kU8}) {
    Random random(test_seed());
    Rows rows(dtype);
    for (size_t i = 0; i < 576; ++i)
      rows.values[i] = BFloat16::from_float(i < 512 ? 0.05f * random.normal() : random.normal()).to_float();
    const float scale = 4.0f / 448;
    const std::vector<float> back = rows.through(scale);
    for (size_t i = 0; i < 576; ++i) {
      const float own = dtype == DType::kF8E4M3
                            ? scale
                            : block_scale(rows.values.data() + i / 128 * 128, i < 512 ? 128 : 64);
      // Half a step: 2^-4 of the value, or half of the subnormal distance 2^-9; and the two roundings of the
      // quotient and the product.
      const float bound = std::max(0x1p-4f * std::abs(rows.values[i]), 0x1p-10f * own) * (1 + 0x1p-20f);
      if (dtype == DType::kU8 && i >= 512)
        EXPECT_EQ(back[i], rows.values[i]);
      else
        EXPECT_NEAR(back[i], rows.values[i], bound) << i;
    }
  }
}

TEST(KvRow, bytes_lie_where_the_formats_say) {
  Rows rows(DType::kU8);
  for (size_t i = 0; i < 576; ++i) rows.values[i] = static_cast<float>(i / 128 + 1);
  rows.through(1);
  float scales[4];
  std::memcpy(scales, rows.bytes.data() + 512, sizeof scales);
  for (int g = 0; g < 4; ++g) {
    EXPECT_EQ(scales[g], static_cast<float>(g + 1) / 448.0f);
    EXPECT_EQ(rows.bytes[static_cast<size_t>(g * 128 + 5)], std::byte{0x7E});
  }
  BFloat16 last;
  std::memcpy(&last, rows.bytes.data() + 654, 2);
  EXPECT_EQ(last.to_float(), 5.0f);
}

// contract: C2
TEST(KvCacheWrite, rows_of_codes_are_written_whole_and_nothing_else_is_touched) {
  for (const DType act : {DType::kF32, DType::kBF16})
    for (const DType dtype : {DType::kF8E4M3, DType::kU8})
      for (const bool fused : {false, true}) {
        Random random(test_seed());
        const ops::KvLayout layout = {.kv_rank = 256, .rope_dim = 16, .page_tokens = 4, .dtype = dtype};
        const Tensor kv_c = random.tensor(act, {4, 256}), k_pe = random.tensor(act, {4, 16});
        const Tensor positions = random.ids({4}, 0, 9), table = random.tensor(DType::kF32, {10, 16});
        const Tensor slots = random.ids({4}, 0, 0);
        const int32_t places[] = {5, ops::kSkipSlot, 11, 4};
        std::copy_n(places, 4, slots.data<int32_t>());
        testing::PaddedTensor cache = testing::padded(dtype, {3, 4 * layout.width()}, 12);
        testing::PaddedTensor want = testing::padded(dtype, {3, 4 * layout.width()}, 12);
        const ops::KvCacheWriteParams p = {.kv_c = kv_c.view(),
                                           .k_pe = k_pe.view(),
                                           .slots = slots.view(),
                                           .cache = cache.view.reshape({3, 4, layout.width()}),
                                           .scale = 0.01f};
        const ops::RopeKvCacheWriteParams rotated = {
            .write = p, .positions = positions.view(), .cos_sin = table.view(), .attrs = {}};
        ASSERT_TRUE(fused ? check(rotated).ok() : check(p).ok());
        if (fused)
          select(rotated).run(rotated, {});
        else
          select(p).run(p, {});
        const Tensor keys = random.tensor(act, {4, 1, 16});
        copy_elements(k_pe.view().reshape({4, 1, 16}), keys.view());
        if (fused)
          implementations<ops::RopeParams>().back().run({.x = keys.view(),
                                                         .positions = positions.view(),
                                                         .cos_sin = table.view(),
                                                         .out = keys.view(),
                                                         .attrs = {}},
                                                        {});
        for (int t = 0; t < 4; ++t) {
          if (places[t] < 0) continue;
          float values[272];
          for (int i = 0; i < 256; ++i) values[i] = element_to_float(kv_c.view().at(t).raw(), act, i);
          for (int i = 0; i < 16; ++i) values[256 + i] = element_to_float(keys.view().at(t).raw(), act, i);
          std::byte* page = static_cast<std::byte*>(want.view.raw()) + places[t] / 4 * want.view.stride(0);
          encode_kv_columns(layout, values, 0, 272, p.scale, page + places[t] % 4 * layout.width());
        }
        EXPECT_EQ(std::memcmp(cache.storage.view().raw(), want.storage.view().raw(),
                              static_cast<size_t>(want.storage.view().num_bytes())),
                  0);
      }
}

}  // namespace
}  // namespace latent::kernels
