// SPDX-License-Identifier: Apache-2.0
#include "exec/kv_cache.h"

#include <gtest/gtest.h>

#include "tensor/convert.h"
#include "tensor/float_types.h"

namespace latent::exec {
namespace {

constexpr ops::KvLayout kLayout{.kv_rank = 6, .rope_dim = 2, .page_tokens = 16, .dtype = DType::kBF16};

TEST(KvCache, counts_its_bytes) {
  const Result<KvCache> cache = KvCache::create(kLayout, 3, 5, PoisonPattern::kNone);
  ASSERT_TRUE(cache.ok());
  EXPECT_EQ(cache->num_bytes(), 3 * 5 * 16 * 8 * 2);
  EXPECT_EQ(cache->layer(2).shape(), (Shape{5, 16, 8}));
}

// contract: C3
TEST(KvCache, a_page_that_goes_back_forgets_what_it_held) {
  Result<KvCache> cache = KvCache::create(kLayout, 2, 4, PoisonPattern::kNan);
  ASSERT_TRUE(cache.ok());
  for (int layer = 0; layer < 2; ++layer) {
    const TensorView view = cache->layer(layer);
    for (int64_t i = 0; i < view.num_elements(); ++i) view.data<BFloat16>()[i] = BFloat16::from_float(1.0f);
  }
  cache->poison_page(2);
  for (int layer = 0; layer < 2; ++layer)
    for (int page = 0; page < 4; ++page) {
      const TensorView view = cache->layer(layer).at(page);
      const auto bad = find_non_finite(view.raw(), view.dtype(), view.num_elements());
      EXPECT_EQ(bad.has_value(), page == 2);
    }
}

TEST(KvCache, a_page_outside_is_our_bug) {
  Result<KvCache> cache = KvCache::create(kLayout, 1, 4, PoisonPattern::kNan);
  ASSERT_TRUE(cache.ok());
  EXPECT_DEATH(cache->poison_page(4), "page 4 of 4");
  EXPECT_DEATH(cache->poison_page(-1), "page -1 of 4");
}

}  // namespace
}  // namespace latent::exec
