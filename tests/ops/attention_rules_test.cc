// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "ops/kv_layout.h"
#include "ops/mla_attention.h"
#include "ops/rope.h"

namespace latent::ops {
namespace {

std::byte g_memory[1];

TensorView view(DType dtype, const Shape& shape) { return {g_memory, dtype, shape}; }
TensorView f32(const Shape& shape) { return view(DType::kF32, shape); }
TensorView i32(const Shape& shape) { return view(DType::kI32, shape); }

void expect_refused(const Status& status, const char* words) {
  ASSERT_FALSE(status.ok()) << "should say: " << words;
  EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
}

// 5 tokens of 2 requests, 3 heads, latent 16, rope 4, nope 6, v 7, pages of 8 tokens.
MlaAttentionParams attention(AttentionForm form) {
  const bool absorbed = form == AttentionForm::kAbsorbed;
  return {.q_nope = f32({5, 3, absorbed ? 16 : 6}),
          .q_pe = f32({5, 3, 4}),
          .cache = view(DType::kBF16, {9, 8, 20}),
          .batch = {.q_starts = i32({3}), .kv_lens = i32({2}), .block_table = i32({2, 4})},
          .kv_b = {.values = absorbed ? TensorView() : f32({3 * (6 + 7), 16}), .scales = {}},
          .out = f32({5, 3, absorbed ? 16 : 7}),
          .lse = f32({5, 3}),
          .attrs = {.form = form,
                    .num_heads = 3,
                    .kv_rank = 16,
                    .rope_dim = 4,
                    .nope_dim = 6,
                    .v_dim = 7,
                    .page_tokens = 8,
                    .softmax_scale = 1}};
}

TEST(AttentionRules, both_forms_have_their_own_widths) {
  EXPECT_TRUE(check(attention(AttentionForm::kAbsorbed)).ok());
  EXPECT_TRUE(check(attention(AttentionForm::kMultiHead)).ok());
  MlaAttentionParams p = attention(AttentionForm::kAbsorbed);
  p.out = f32({5, 3, 7});
  expect_refused(check(p), "out is f32[5, 3, 7]");
  p = attention(AttentionForm::kMultiHead);
  p.kv_b.values = f32({3 * 6 + 7, 16});
  expect_refused(check(p), "kv_b is f32[25, 16]");
}

TEST(AttentionRules, the_batch_fits_its_requests) {
  MlaAttentionParams p = attention(AttentionForm::kAbsorbed);
  p.batch.q_starts = i32({2});
  expect_refused(check(p), "q_starts is i32[2]");
  p = attention(AttentionForm::kAbsorbed);
  p.cache = view(DType::kBF16, {9, 16, 20});
  expect_refused(check(p), "cache is bf16[9, 16, 20]");
}

// contract: C7
TEST(AttentionRules, page_ids_and_slots_of_64_bits_are_refused_by_name) {
  MlaAttentionParams p = attention(AttentionForm::kAbsorbed);
  p.batch.block_table = view(DType::kI64, {2, 4});
  expect_refused(check(p), "block_table has dtype i64");
  const KvCacheWriteParams write{f32({5, 16}), f32({5, 4}), view(DType::kI64, {5}),
                                 view(DType::kBF16, {9, 8, 20})};
  expect_refused(check(write), "slots has dtype i64");
}

TEST(AttentionRules, a_cache_row_is_latent_and_rope_key) {
  KvCacheWriteParams write{f32({5, 16}), f32({5, 4}), i32({5}), view(DType::kBF16, {9, 8, 20})};
  EXPECT_TRUE(check(write).ok());
  write.cache = view(DType::kBF16, {9, 8, 16});
  expect_refused(check(write), "cache is bf16[9, 8, 16]");
  EXPECT_EQ((KvLayout{}.token_bytes()), 576 * 2);
  EXPECT_EQ((KvLayout{}.page_bytes()), 64 * 576 * 2);
}

// 512 latent columns and 64 of the rope key: 576 bytes with one scale, 656 with a scale a block.
TEST(AttentionRules, quantised_rows_have_bytes_of_their_own) {
  const KvLayout one = {.dtype = DType::kF8E4M3}, blocks = {.dtype = DType::kU8};
  EXPECT_EQ(one.token_bytes(), 576);
  EXPECT_EQ(blocks.token_bytes(), 656);
  EXPECT_EQ(blocks.scales_at(), 512);
  EXPECT_EQ(blocks.rope_at(), 528);
  EXPECT_EQ(blocks.page_bytes(), 64 * 656);
}

TEST(AttentionRules, quantised_caches_are_checked_for_their_scales) {
  MlaAttentionParams p = attention(AttentionForm::kAbsorbed);
  p.cache = view(DType::kF8E4M3, {9, 8, 20});
  EXPECT_TRUE(check(p).ok());
  for (const float scale : {0.0f, -1.0f, INFINITY, NAN}) {
    p.cache_scale = scale;
    expect_refused(check(p), "must be finite and positive");
  }
  p.cache = view(DType::kBF16, {9, 8, 20});  // has none, and does not look at it
  EXPECT_TRUE(check(p).ok());
  p.cache = view(DType::kU8, {9, 8, 24});
  expect_refused(check(p), "kv_rank 16 is no multiple of 128");
  KvCacheWriteParams write{f32({5, 128}), f32({5, 4}), i32({5}), view(DType::kU8, {9, 8, 128 + 4 + 8})};
  EXPECT_TRUE(check(write).ok());
  write.cache = view(DType::kU8, {9, 8, 128 + 4 + 4});
  expect_refused(check(write), "cache is u8[9, 8, 136]");
  write.cache = TensorView(g_memory, DType::kF8E4M3, {9, 8, 132}, {8 * 132 * 2, 132 * 2, 2});
  expect_refused(check(write), "are not contiguous");
}

TEST(AttentionRules, an_odd_rope_width_is_refused) {
  const auto rope = [](int64_t width) {
    return RopeParams{f32({5, 3, width}), i32({5}), f32({100, width}), f32({5, 3, width}), {}};
  };
  EXPECT_TRUE(check(rope(4)).ok());
  expect_refused(check(rope(5)), "rope_dim 5 is odd");
  const RopeKvCacheWriteParams fused{
      {f32({5, 16}), f32({5, 3}), i32({5}), f32({9, 8, 19})}, i32({5}), f32({100, 3}), {}};
  expect_refused(check(fused), "rope_dim 3 is odd");
}

TEST(AttentionRules, states_to_merge_have_one_shape) {
  EXPECT_TRUE(check(MergeStatesParams{f32({5, 3, 16}), f32({5, 3}), f32({5, 3, 16}), f32({5, 3})}).ok());
  expect_refused(check(MergeStatesParams{f32({5, 3, 16}), f32({5, 3}), f32({5, 3, 16}), f32({5, 4})}),
                 "lse_b is f32[5, 4]");
}

}  // namespace
}  // namespace latent::ops
