// SPDX-License-Identifier: Apache-2.0
#include "attention/cache/cache_gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "attention/cache/cache_write.h"
#include "attention/cache/device_tensor.h"
#include "kernels/kv_row.h"
#include "tensor/convert.h"
#include "testing/compare.h"
#include "testing/poison.h"
#include "testing/random.h"

namespace latent::attention {
namespace {

using testing::DeviceTensor;
using testing::padded;
using testing::PaddedTensor;
using testing::Random;
using testing::test_seed;

constexpr int kPages = 9;

// Pages of codes of random values; each request has three of them, in any order, and an absurd id behind.
struct Gather {
  Gather(Random& random, DType dtype, int kv_rank, int rope_dim, int page_tokens)
      : layout{.kv_rank = kv_rank, .rope_dim = rope_dim, .page_tokens = page_tokens, .dtype = dtype},
        cache(padded(dtype, {kPages, page_tokens * layout.width()}, 64)),
        values(random.tensor(DType::kF32, {kPages * page_tokens, kv_rank + rope_dim})) {
    for (int slot = 0; slot < kPages * page_tokens; ++slot) {
      const float* row = values.view().row<float>(slot);
      if (layout.format() == ops::KvFormat::kWide)
        convert_elements(row, DType::kF32, this->row(slot), dtype, layout.width());
      else
        kernels::encode_kv_columns(layout, row, 0, kv_rank + rope_dim, scale, this->row(slot));
    }
    table = random.ids({3, 4}, INT32_MAX, INT32_MAX);
    const int32_t pages[] = {7, 2, 5, 1, 8, 3, 4, 6, 0};
    for (int i = 0; i < kPages; ++i) table.data<int32_t>()[i / 3 * 4 + i % 3] = pages[i];
  }

  std::byte* row(int slot) const {
    return static_cast<std::byte*>(cache.view.raw()) +
           (slot / layout.page_tokens * cache.view.stride(0) + slot % layout.page_tokens * layout.width()) *
               static_cast<int64_t>(dtype_bytes(layout.dtype));
  }
  int columns() const { return layout.kv_rank + layout.rope_dim; }

  Status run(const Tensor& starts, const Tensor& out_starts, const TensorView& out) const {
    const DeviceTensor d_cache(cache.storage.view()), d_table(table.view()), d_starts(starts.view()),
        d_out_starts(out_starts.view()), d_out(out);
    const TensorView pages = {d_cache.view().raw(), layout.dtype, cache.view.shape(), cache.view.strides()};
    const Status status = gather_cache({.cache = pages.reshape({kPages, layout.page_tokens, layout.width()}),
                                        .block_table = d_table.view(),
                                        .starts = d_starts.view(),
                                        .out_starts = d_out_starts.view(),
                                        .out = d_out.view(),
                                        .kv_rank = layout.kv_rank,
                                        .rope_dim = layout.rope_dim,
                                        .scale = scale},
                                       nullptr);
    if (status.ok()) d_out.download();
    return status;
  }

  ops::KvLayout layout;
  PaddedTensor cache;
  Tensor values, table;
  float scale = 0.07f;
};

Tensor ids_of(Random& random, const std::vector<int32_t>& ids) {
  Tensor tensor = random.ids({static_cast<int64_t>(ids.size())}, 0, 0);
  std::copy(ids.begin(), ids.end(), tensor.data<int32_t>());
  return tensor;
}

// contract: C2
TEST(GatherCache, rows_are_those_of_the_reference_wherever_they_begin) {
  if (!testing::has_gpu()) GTEST_SKIP() << "the driver shows no GPU";
  constexpr DType kTypes[][2] = {
      {DType::kBF16, DType::kBF16},  {DType::kF16, DType::kF16},    {DType::kF16, DType::kF32},
      {DType::kF8E4M3, DType::kF32}, {DType::kF8E4M3, DType::kF16}, {DType::kF8E4M3, DType::kBF16},
      {DType::kU8, DType::kF32},     {DType::kU8, DType::kBF16},    {DType::kU8, DType::kF16}};
  for (const auto& types : kTypes)
    for (const auto& [kv_rank, rope_dim, page_tokens] :
         {std::tuple{512, 64, 16}, {512, 0, 32}, {256, 32, 5}, {256, 8, 64}}) {
      Random random(test_seed(static_cast<uint64_t>(kv_rank + page_tokens)));
      const Gather g(random, types[0], kv_rank, rope_dim, page_tokens);
      // From the middle of a page to the last token, nothing, and a few across a border; then padding.
      const int whole = 3 * page_tokens, begin = page_tokens / 2;
      const Tensor starts = ids_of(random, {begin, 1, page_tokens - 1});
      const int first = whole - begin;
      const Tensor out_starts = ids_of(random, {0, first, first, first + 3});
      PaddedTensor out = padded(types[1], {first + 5, g.columns()}, 16);
      const Status status = g.run(starts, out_starts, out.view);
      ASSERT_TRUE(status.ok()) << status.error().message;
      for (int r = 0; r < first + 5; ++r) {
        const int seq = r < first ? 0 : 2, token = r < first ? begin + r : page_tokens - 1 + r - first;
        std::vector<float> want(static_cast<size_t>(g.columns()));
        if (r < first + 3) {
          const int slot =
              g.table.data<int32_t>()[seq * 4 + token / page_tokens] * page_tokens + token % page_tokens;
          if (g.layout.format() == ops::KvFormat::kWide)
            convert_elements(g.row(slot), types[0], want.data(), DType::kF32, g.columns());
          else
            kernels::decode_kv_row(g.layout, g.row(slot), g.scale, 0, g.columns(), want.data());
        }
        std::vector<std::byte> bytes(want.size() * dtype_bytes(types[1]));
        convert_elements(want.data(), DType::kF32, bytes.data(), types[1], g.columns());
        const auto* got = static_cast<const std::byte*>(out.view.raw()) +
                          r * out.view.stride(0) * static_cast<int64_t>(dtype_bytes(types[1]));
        ASSERT_EQ(std::memcmp(got, bytes.data(), bytes.size()), 0)
            << to_string(types[0]) << " as " << to_string(types[1]) << " row " << r;
      }
    }
}

TEST(GatherCache, a_row_beyond_the_table_or_of_no_page_is_nan) {
  if (!testing::has_gpu()) GTEST_SKIP() << "the driver shows no GPU";
  Random random(test_seed());
  const Gather g(random, DType::kF8E4M3, 128, 16, 4);
  PaddedTensor out = padded(DType::kF32, {8, 144}, 0, PoisonPattern::kLarge);
  // Request 0: its last token, then the absurd id; request 1: past the table's last column.
  ASSERT_TRUE(g.run(ids_of(random, {11, 15, 0}), ids_of(random, {0, 3, 6, 8}), out.view).ok());
  for (int r = 0; r < 8; ++r)
    for (int i = 0; i < 144; ++i)
      EXPECT_EQ(std::isnan(out.view.row<float>(r)[i]), r > 0 && r < 6) << r << " " << i;
}

// contract: C7
TEST(GatherCache, offsets_beyond_8_gib_are_written_and_read_where_they_are) {
  if (!testing::has_gpu()) GTEST_SKIP() << "the driver shows no GPU";
  constexpr int64_t kPageBytes = int64_t{3} << 30;
  Result<CudaBuffer> pool = CudaBuffer::create(static_cast<size_t>(3 * kPageBytes + (1 << 20)));
  if (!pool) GTEST_SKIP() << pool.error().message;
  Random random(test_seed());
  const Tensor kv_c = random.tensor(DType::kBF16, {2, 512}), k_pe = random.tensor(DType::kBF16, {2, 64});
  const Tensor slots = ids_of(random, {3 * 16 + 2, 16}), table = random.ids({1, 1}, 3, 3);
  const Tensor starts = ids_of(random, {2}), out_starts = ids_of(random, {0, 1});
  const Tensor out = random.tensor(DType::kBF16, {1, 576});
  const DeviceTensor d_kv_c(kv_c.view()), d_k_pe(k_pe.view()), d_slots(slots.view()), d_table(table.view()),
      d_starts(starts.view()), d_out_starts(out_starts.view()), d_out(out.view());
  const TensorView cache(pool->data(), DType::kBF16, {4, 16, 576}, {kPageBytes / 2, 576, 1});
  ASSERT_TRUE(write_cache({.kv_c = d_kv_c.view(),
                           .norm_weight = {},
                           .k_pe = d_k_pe.view(),
                           .positions = {},
                           .cos_sin = {},
                           .slots = d_slots.view(),
                           .cache = cache},
                          nullptr)
                  .ok());
  ASSERT_TRUE(gather_cache({.cache = cache,
                            .block_table = d_table.view(),
                            .starts = d_starts.view(),
                            .out_starts = d_out_starts.view(),
                            .out = d_out.view(),
                            .kv_rank = 512,
                            .rope_dim = 64},
                           nullptr)
                  .ok());
  d_out.download();
  EXPECT_TRUE(testing::same_bits(out.view().slice(1, 0, 512), kv_c.view().slice(0, 0, 1)));
  EXPECT_TRUE(testing::same_bits(out.view().slice(1, 512, 576), k_pe.view().slice(0, 0, 1)));
}

TEST(GatherCache, refuses_what_does_not_fit_with_a_sentence) {
  alignas(16) static std::byte memory[16];
  const auto view = [](DType dtype, const Shape& shape) { return TensorView(memory, dtype, shape); };
  const CacheGatherParams good = {.cache = view(DType::kF8E4M3, {4, 64, 576}),
                                  .block_table = view(DType::kI32, {2, 4}),
                                  .starts = view(DType::kI32, {2}),
                                  .out_starts = view(DType::kI32, {3}),
                                  .out = view(DType::kBF16, {0, 576}),
                                  .kv_rank = 512,
                                  .rope_dim = 64};
  ASSERT_TRUE(gather_cache(good, nullptr).ok());  // no rows: nothing is launched
  const auto expect_refused = [&](auto change, const char* words) {
    CacheGatherParams bad = good;
    change(&bad);
    const Status status = gather_cache(bad, nullptr);
    ASSERT_FALSE(status.ok()) << words;
    EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
  };
  expect_refused([&](auto* p) { p->out = view(DType::kBF16, {0, 512}); }, "out is bf16[0, 512]");
  expect_refused([&](auto* p) { p->out_starts = view(DType::kI32, {2}); }, "out_starts is i32[2]");
  expect_refused([&](auto* p) { p->block_table = view(DType::kI64, {2, 4}); }, "block_table has dtype i64");
  expect_refused([&](auto* p) { p->cache = view(DType::kU8, {4, 64, 576}); }, "cache is u8[4, 64, 576]");
  expect_refused([&](auto* p) { p->scale = -1; }, "must be finite and positive");
  expect_refused([&](auto* p) { p->kv_rank = 500, p->rope_dim = 76; }, "multiples of 8");
  expect_refused([&](auto* p) { p->cache = view(DType::kF16, {4, 64, 576}); }, "rows of f16 as bf16");
}

}  // namespace
}  // namespace latent::attention
