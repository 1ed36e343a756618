// SPDX-License-Identifier: Apache-2.0
// Rotation and the cache write, every implementation.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/registry.h"
#include "tensor/convert.h"
#include "tensor/float_types.h"
#include "testing/compare.h"
#include "testing/poison.h"
#include "testing/random.h"

namespace latent {
namespace {

using kernels::Implementation;
using kernels::implementations;
using ops::RopeStyle;
using testing::padded;
using testing::PaddedTensor;
using testing::Random;
using testing::same_bits;

constexpr RopeStyle kStyles[] = {RopeStyle::kInterleaved, RopeStyle::kHalves};

// cos and sin of random angles times a factor, as a YaRN table holds them.
Tensor angle_table(Random& random, int64_t positions, int64_t rope_dim) {
  Tensor table = random.tensor(DType::kF32, {positions, rope_dim});
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t i = 0; i < rope_dim / 2; ++i) {
      const float angle = 10 * table.view().row<float>(p)[i];
      table.view().row<float>(p)[i] = 1.2f * std::cos(angle);
      table.view().row<float>(p)[rope_dim / 2 + i] = 1.2f * std::sin(angle);
    }
  return table;
}

TEST(Rope, rotates_pairs_of_either_style_by_hand) {
  // A quarter turn, then none: (1, 2) becomes (-2, 1), (3, 4) stays.
  float angles[] = {0, 1, 1, 0};
  int32_t position[] = {0};
  for (const auto& impl : implementations<ops::RopeParams>()) {
    float interleaved[] = {1, 2, 3, 4}, halves[] = {1, 3, 2, 4};
    for (float* x : {interleaved, halves}) {
      const ops::RopeParams p = {
          .x = {x, DType::kF32, {1, 1, 4}},
          .positions = {position, DType::kI32, {1}},
          .cos_sin = {angles, DType::kF32, {1, 4}},
          .out = {x, DType::kF32, {1, 1, 4}},
          .attrs = {.style = x == interleaved ? RopeStyle::kInterleaved : RopeStyle::kHalves}};
      ASSERT_TRUE(check(p).ok());
      impl.run(p, {});
    }
    const float want_interleaved[] = {-2, 1, 3, 4}, want_halves[] = {-2, 3, 1, 4};
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(interleaved[i], want_interleaved[i]) << impl.name;
      EXPECT_EQ(halves[i], want_halves[i]) << impl.name;
    }
  }
}

TEST(Rope, every_implementation_is_within_the_rounding_of_two_products) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const RopeStyle style : kStyles)
      for (const int64_t rope_dim : {2, 10, 64}) {
        Random random(testing::test_seed(static_cast<uint64_t>(rope_dim)));
        const Tensor table = angle_table(random, 40, rope_dim), positions = random.ids({9}, 0, 39);
        PaddedTensor x = padded(dtype, {9, 3, rope_dim}, 6), out = padded(dtype, {9, 3, rope_dim}, 2);
        random.fill(x.view);
        const Tensor want = random.tensor(DType::kF32, {9, 3, rope_dim}),
                     bound = random.tensor(DType::kF32, {9, 3, rope_dim});
        for (int64_t t = 0; t < 9; ++t)
          for (int64_t h = 0; h < 3; ++h)
            for (int64_t i = 0; i < rope_dim / 2; ++i) {
              const bool pairs = style == RopeStyle::kInterleaved;
              const int64_t first = pairs ? 2 * i : i, second = pairs ? 2 * i + 1 : i + rope_dim / 2;
              const auto element = [&](int64_t k) {
                return dtype == DType::kF32 ? double{x.view.at(t).row<float>(h)[k]}
                                            : double{x.view.at(t).row<BFloat16>(h)[k].to_float()};
              };
              const float* angles = table.view().row<float>(positions.data<int32_t>()[t]);
              const double c = angles[i], s = angles[rope_dim / 2 + i], a = element(first),
                           b = element(second);
              const double sizes = std::abs(a * c) + std::abs(b * s) + std::abs(a * s) + std::abs(b * c);
              for (const auto& [at, value] :
                   {std::pair{first, a * c - b * s}, std::pair{second, b * c + a * s}}) {
                want.view().at(t).row<float>(h)[at] = static_cast<float>(value);
                bound.view().at(t).row<float>(h)[at] = static_cast<float>(
                    3 * 0x1p-24 * sizes + unit_roundoff(dtype) * 1.01 * std::abs(value) + 1e-30);
              }
            }
        for (const auto& impl : implementations<ops::RopeParams>()) {
          testing::poison(out.view, PoisonPattern::kNan);
          const ops::RopeParams p = {.x = x.view,
                                     .positions = positions.view(),
                                     .cos_sin = table.view(),
                                     .out = out.view,
                                     .attrs = {.style = style}};
          ASSERT_TRUE(check(p).ok());
          if (impl.refuse != nullptr && impl.refuse(p, cpu_features()) != nullptr) continue;
          impl.run(p, {.num_threads = 2});
          EXPECT_TRUE(testing::is_within(out.view, want.view(), bound.view(), random.seed())) << impl.name;
        }
      }
}

struct Write {
  Write(Random& random, DType act, DType cache_dtype, PoisonPattern pattern, int64_t rank = 24,
        int64_t rope_dim = 10)
      : kv_c(padded(act, {7, rank}, 3)),
        k_pe(padded(act, {7, rope_dim}, 5)),
        cache(padded(cache_dtype, {5, 4 * (rank + rope_dim)}, 8, pattern)) {
    random.fill(kv_c.view);
    random.fill(k_pe.view);
    slots = random.ids({7}, 0, 0);
    const int32_t places[] = {4, 19, ops::kSkipSlot, 7, 8, ops::kSkipSlot, 13};
    std::copy_n(places, 7, slots.data<int32_t>());
    params = {.kv_c = kv_c.view,
              .k_pe = k_pe.view,
              .slots = slots.view(),
              .cache = cache.view.reshape({5, 4, rank + rope_dim})};
  }
  PaddedTensor kv_c, k_pe, cache;
  Tensor slots;
  ops::KvCacheWriteParams params;
};

constexpr DType kActs[] = {DType::kF32, DType::kBF16};
constexpr DType kCaches[] = {DType::kF32, DType::kF16, DType::kBF16};

// contract: C2
TEST(KvCacheWrite, rows_go_to_their_slots_and_nothing_else_is_touched) {
  for (const DType act : kActs)
    for (const DType cache : kCaches)
      for (const auto& impl : implementations<ops::KvCacheWriteParams>())
        for (const PoisonPattern pattern : testing::kPoisonPatterns) {
          Random random(testing::test_seed());
          Write w(random, act, cache, pattern);
          ASSERT_TRUE(check(w.params).ok());
          impl.run(w.params, {.num_threads = 2});
          // The same by single elements, into memory that holds the same pattern.
          Random again(testing::test_seed());
          Write want(again, act, cache, pattern);
          for (int64_t t = 0; t < 7; ++t) {
            const int32_t slot = w.slots.data<int32_t>()[t];
            if (slot == ops::kSkipSlot) continue;
            const TensorView row = want.params.cache.at(slot / 4).at(slot % 4);
            const auto bytes = dtype_bytes(act);
            for (int64_t i = 0; i < 34; ++i) {
              const TensorView from = i < 24 ? w.kv_c.view.at(t) : w.k_pe.view.at(t);
              testing::for_each_element(row.slice(0, i, i + 1), [&](const testing::Index&, void* element) {
                const auto at = static_cast<size_t>(i < 24 ? i : i - 24);
                convert_elements(static_cast<const std::byte*>(from.raw()) + at * bytes, act, element, cache,
                                 1);
              });
            }
          }
          EXPECT_TRUE(same_bits(w.cache.storage.view(), want.cache.storage.view())) << impl.name;
        }
}

TEST(RopeKvCacheWrite, fused_gives_the_bits_of_rope_and_then_write) {
  for (const RopeStyle style : kStyles)
    for (const DType act : kActs)
      for (const DType cache : kCaches)
        for (size_t i = 0; i < implementations<ops::RopeParams>().size(); ++i) {
          Random random(testing::test_seed()), again(testing::test_seed());
          Write fused(random, act, cache, PoisonPattern::kNan), apart(again, act, cache, PoisonPattern::kNan);
          const Tensor table = angle_table(random, 20, 10), positions = random.ids({7}, 0, 19);
          const ops::RopeKvCacheWriteParams p = {.write = fused.params,
                                                 .positions = positions.view(),
                                                 .cos_sin = table.view(),
                                                 .attrs = {.style = style}};
          ASSERT_TRUE(check(p).ok());
          implementations<ops::RopeKvCacheWriteParams>()[i].run(p, {.num_threads = 2});
          const TensorView k_pe = apart.k_pe.view.reshape({7, 1, 10});
          implementations<ops::RopeParams>()[i].run({.x = k_pe,
                                                     .positions = positions.view(),
                                                     .cos_sin = table.view(),
                                                     .out = k_pe,
                                                     .attrs = {.style = style}},
                                                    {});
          implementations<ops::KvCacheWriteParams>()[i].run(apart.params, {});
          EXPECT_TRUE(same_bits(fused.cache.storage.view(), apart.cache.storage.view()))
              << implementations<ops::RopeKvCacheWriteParams>()[i].name;
        }
}

// contract: C7
TEST(KvCacheWriteDeathTest, a_slot_outside_the_pool_or_in_the_null_page_is_our_bug) {
  Random random(testing::test_seed());
  Write w(random, DType::kF32, DType::kF32, PoisonPattern::kNan);
  for (const auto& impl : implementations<ops::KvCacheWriteParams>())
    for (const int32_t slot : {0, 3, 20, INT32_MAX, -2}) {
      w.slots.data<int32_t>()[4] = slot;
      EXPECT_DEATH(impl.run(w.params, {}), "slot") << impl.name;
    }
}

}  // namespace
}  // namespace latent
