// SPDX-License-Identifier: Apache-2.0
#include "attention/cache/cache_write.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "attention/cache/device_tensor.h"
#include "kernels/kv_row.h"
#include "tensor/convert.h"
#include "testing/poison.h"
#include "testing/random.h"

namespace latent::attention {
namespace {

using ops::RopeStyle;
using testing::DeviceTensor;
using testing::padded;
using testing::PaddedTensor;
using testing::Random;
using testing::test_seed;

constexpr int kPageTokens = 16, kPages = 5, kMaxPositions = 50;

float value_of(const TensorView& view, int64_t row, int64_t column) {
  return element_to_float(view.raw(), view.dtype(), row * view.stride(0) + column);
}

float rounded(float x, DType dtype) {
  std::byte bytes[4];
  convert_elements(&x, DType::kF32, bytes, dtype, 1);
  return element_to_float(bytes, dtype, 0);
}

// Host operands of one write: strided rows, slots with gaps, pages further apart than they need.
struct Write {
  Write(Random& random, DType act, DType cache_dtype, int kv_rank, int rope_dim, int num_tokens,
        PoisonPattern pattern = PoisonPattern::kNan)
      : layout{.kv_rank = kv_rank, .rope_dim = rope_dim, .page_tokens = kPageTokens, .dtype = cache_dtype},
        kv_c(padded(act, {num_tokens, kv_rank}, 24)),
        k_pe(padded(act, {num_tokens, rope_dim}, 8)),
        cache(padded(cache_dtype, {kPages, kPageTokens * layout.width()}, 64, pattern)) {
    random.fill(kv_c.view, testing::Values::kNormal, 0.05f);
    random.fill(k_pe.view);
    weight = random.tensor(act, {kv_rank});
    slots = random.ids({num_tokens}, 0, 0);
    positions = random.ids({num_tokens}, 0, kMaxPositions - 1);
    cos_sin = random.tensor(DType::kF32, {kMaxPositions, std::max(rope_dim, 2)});
    std::vector<int32_t> places(kPages * kPageTokens);
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int32_t>(i);
    std::shuffle(places.begin(), places.end(), std::mt19937_64(random.seed()));
    std::copy_n(places.begin(), num_tokens, slots.data<int32_t>());
    for (int64_t t = 0; t < num_tokens; t += 5) slots.data<int32_t>()[t] = ops::kSkipSlot;
    if (num_tokens > 6) slots.data<int32_t>()[6] = kPages * kPageTokens;  // one too far
  }

  // Runs it on the device and brings the cache back.
  void run(bool normalises, bool rotates, RopeStyle style) {
    const DeviceTensor d_kv_c(kv_c.view), d_k_pe(layout.rope_dim > 0 ? k_pe.view : TensorView()),
        d_weight(weight.view()), d_positions(positions.view()), d_cos_sin(cos_sin.view()),
        d_slots(slots.view()), d_cache(cache.storage.view());
    TensorView pages = {d_cache.view().raw(), layout.dtype, cache.view.shape(), cache.view.strides()};
    const CacheWriteParams p = {.kv_c = d_kv_c.view(),
                                .norm_weight = normalises ? d_weight.view() : TensorView(),
                                .k_pe = d_k_pe.view(),
                                .positions = rotates ? d_positions.view() : TensorView(),
                                .cos_sin = rotates ? d_cos_sin.view() : TensorView(),
                                .slots = d_slots.view(),
                                .cache = pages.reshape({kPages, kPageTokens, layout.width()}),
                                .style = style,
                                .scale = scale};
    const Status status = write_cache(p, nullptr);
    ASSERT_TRUE(status.ok()) << status.error().message;
    d_cache.download();
  }

  std::byte* row(int32_t slot) const {
    return static_cast<std::byte*>(cache.view.raw()) +
           (slot / kPageTokens * cache.view.stride(0) + slot % kPageTokens * layout.width()) *
               static_cast<int64_t>(dtype_bytes(layout.dtype));
  }
  bool is_written(int64_t token) const {
    const int32_t slot = slots.data<int32_t>()[token];
    return slot >= 0 && slot < kPages * kPageTokens;
  }
  // A token's row as the operators one by one make it, from `latent`.
  void store(int64_t token, const std::vector<float>& latent, bool rotates, RopeStyle style) const {
    std::vector<float> values = latent;
    const int half = layout.rope_dim / 2;
    const float* angles = cos_sin.view().row<float>(positions.data<int32_t>()[token]);
    for (int i = 0; i < layout.rope_dim; ++i) {
      const bool halves = style == RopeStyle::kHalves, first = halves ? i < half : i % 2 == 0;
      const int pair = halves ? i % half : i / 2;
      const float own = value_of(k_pe.view, token, i);
      const float other = value_of(k_pe.view, token, halves ? (i + half) % layout.rope_dim : i ^ 1);
      const float mine = own * angles[pair], theirs = other * angles[half + pair];
      const float turned = rounded(first ? mine - theirs : mine + theirs, k_pe.view.dtype());
      values.push_back(rotates ? turned : own);
    }
    std::byte* to = row(slots.data<int32_t>()[token]);
    if (layout.format() == ops::KvFormat::kWide)
      convert_elements(values.data(), DType::kF32, to, layout.dtype, layout.width());
    else
      kernels::encode_kv_columns(layout, values.data(), 0, layout.kv_rank + layout.rope_dim, scale, to);
  }

  ops::KvLayout layout;
  PaddedTensor kv_c, k_pe, cache;
  Tensor weight, slots, positions, cos_sin;
  float scale = 0.0109f;
};

bool same_pools(const Write& a, const Write& b) {
  return std::memcmp(a.cache.storage.view().raw(), b.cache.storage.view().raw(),
                     static_cast<size_t>(a.cache.storage.view().num_bytes())) == 0;
}

struct Types {
  DType act, cache;
};
constexpr Types kTypes[] = {{DType::kBF16, DType::kBF16},
                            {DType::kF16, DType::kF16},
                            {DType::kBF16, DType::kF8E4M3},
                            {DType::kF16, DType::kF8E4M3},
                            {DType::kBF16, DType::kU8}};
constexpr int kShapes[][2] = {{512, 64}, {512, 0}, {256, 32}, {256, 16}, {1024, 128}};

// contract: C2
TEST(WriteCache, gives_the_bits_of_the_operators_one_by_one_and_touches_nothing_else) {
  if (!testing::has_gpu()) GTEST_SKIP() << "the driver shows no GPU";
  for (const Types& types : kTypes)
    for (const auto& shape : kShapes)
      for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalves})
        for (const bool rotates : {shape[1] > 0, false}) {
          const uint64_t seed = test_seed(static_cast<uint64_t>(shape[0] + shape[1]));
          Random random(seed), again(seed);
          Write got(random, types.act, types.cache, shape[0], shape[1], 39);
          const Write want(again, types.act, types.cache, shape[0], shape[1], 39);
          got.run(false, rotates, style);
          for (int64_t t = 0; t < 39; ++t) {
            if (!want.is_written(t)) continue;
            std::vector<float> latent;
            for (int i = 0; i < shape[0]; ++i) latent.push_back(value_of(want.kv_c.view, t, i));
            want.store(t, latent, rotates, style);
          }
          EXPECT_TRUE(same_pools(got, want)) << to_string(types.act) << " into " << to_string(types.cache)
                                             << " " << shape[0] << "+" << shape[1] << " seed " << seed;
        }
}

TEST(WriteCache, the_norm_is_within_its_bound_and_codes_are_those_of_the_rounded_norm) {
  if (!testing::has_gpu()) GTEST_SKIP() << "the driver shows no GPU";
  for (const Types& types : kTypes)
    for (const int kv_rank : {512, 256}) {
      Random random(test_seed(2)), again(test_seed(2)), third(test_seed(2));
      Write wide(random, types.act, types.act, kv_rank, 64, 33);
      Write got(again, types.act, types.cache, kv_rank, 64, 33);
      const Write want(third, types.act, types.cache, kv_rank, 64, 33);
      wide.run(true, true, RopeStyle::kInterleaved);
      got.run(true, true, RopeStyle::kInterleaved);
      for (int64_t t = 0; t < 33; ++t) {
        if (!wide.is_written(t)) continue;
        double sum = 0;
        std::vector<float> latent;
        for (int i = 0; i < kv_rank; ++i) sum += std::pow(double{value_of(wide.kv_c.view, t, i)}, 2);
        const double factor = 1 / std::sqrt(sum / kv_rank + 1e-6);
        for (int i = 0; i < kv_rank; ++i) {
          latent.push_back(element_to_float(wide.row(wide.slots.data<int32_t>()[t]), types.act, i));
          const double exact = value_of(wide.kv_c.view, t, i) * factor *
                               element_to_float(wide.weight.view().raw(), types.act, i);
          // The sum of kv_rank squares in any order, a root, a quotient and two products; one rounding; half
          // a step of f16's subnormal numbers.
          const double relative = (kv_rank + 8) * 0x1p-24 + unit_roundoff(types.act) * (1 + 1e-3);
          EXPECT_NEAR(latent.back(), exact, relative * std::abs(exact) + 0x1p-25) << t << " " << i;
        }
        want.store(t, latent, true, RopeStyle::kInterleaved);
      }
      EXPECT_TRUE(same_pools(got, want)) << to_string(types.act) << " into " << to_string(types.cache);
    }
}

// contract: C16
TEST(WriteCache, values_that_are_not_finite_and_unknown_positions_are_seen_in_the_cache) {
  if (!testing::has_gpu()) GTEST_SKIP() << "the driver shows no GPU";
  for (const DType dtype : {DType::kF8E4M3, DType::kU8}) {
    Random random(test_seed());
    Write w(random, DType::kBF16, dtype, 512, 64, 3);
    w.kv_c.view.row<BFloat16>(1)[200] = BFloat16::from_float(INFINITY);
    w.kv_c.view.row<BFloat16>(1)[300] = BFloat16::from_float(NAN);
    w.positions.data<int32_t>()[2] = kMaxPositions;
    w.run(false, true, RopeStyle::kInterleaved);
    for (int column = 0; column < 576; ++column) {
      const auto at = [&](int64_t token) {
        return kernels::kv_element(w.layout, w.row(w.slots.data<int32_t>()[token]), w.scale, column);
      };
      EXPECT_EQ(std::isfinite(at(1)), column != 200 && column != 300) << column;
      EXPECT_EQ(std::isfinite(at(2)), column < 512) << column;
    }
  }
}

TEST(WriteCache, refuses_what_does_not_fit_with_a_sentence) {
  alignas(16) static std::byte memory[16];
  const auto view = [](DType dtype, const Shape& shape) { return TensorView(memory, dtype, shape); };
  const CacheWriteParams good = {.kv_c = view(DType::kBF16, {0, 512}),
                                 .norm_weight = view(DType::kF32, {512}),
                                 .k_pe = view(DType::kBF16, {0, 64}),
                                 .positions = view(DType::kI32, {0}),
                                 .cos_sin = view(DType::kF32, {9, 64}),
                                 .slots = view(DType::kI32, {0}),
                                 .cache = view(DType::kU8, {4, 64, 656})};
  ASSERT_TRUE(write_cache(good, nullptr).ok());  // no tokens: nothing is launched
  const auto expect_refused = [&](auto change, const char* words) {
    CacheWriteParams bad = good;
    change(&bad);
    const Status status = write_cache(bad, nullptr);
    ASSERT_FALSE(status.ok()) << words;
    EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
  };
  expect_refused([&](auto* p) { p->kv_c = view(DType::kF32, {0, 512}); }, "kv_c has dtype f32");
  expect_refused([&](auto* p) { p->slots = view(DType::kI64, {0}); }, "slots has dtype i64");
  expect_refused([&](auto* p) { p->cache = view(DType::kU8, {4, 64, 640}); }, "cache is u8[4, 64, 640]");
  expect_refused([&](auto* p) { p->cache = view(DType::kF16, {4, 64, 576}); }, "a f16 cache of bf16");
  expect_refused(
      [&](auto* p) {
        p->kv_c = view(DType::kF16, {0, 512});
        p->k_pe = view(DType::kF16, {0, 64});
      },
      "rope keys of bf16");
  expect_refused(
      [&](auto* p) {
        p->cache = view(DType::kF8E4M3, {4, 64, 576});
        p->scale = 0;
      },
      "must be finite and positive");
  expect_refused(
      [&](auto* p) {
        p->cache = TensorView(memory + 4, DType::kU8, {4, 64, 656});
      },
      "multiples of 8 bytes");
  expect_refused(
      [&](auto* p) {
        p->kv_c = TensorView(memory, DType::kBF16, {2, 512}, {516, 1});
      },
      "num_tokens");
  expect_refused([&](auto* p) { p->eps = NAN; }, "eps is nan");
  expect_refused(
      [&](auto* p) {
        p->kv_c = view(DType::kBF16, {0, 192});
        p->norm_weight = {};
        p->cache = view(DType::kU8, {4, 64, 328});
      },
      "no multiple of 128");
}

}  // namespace
}  // namespace latent::attention
