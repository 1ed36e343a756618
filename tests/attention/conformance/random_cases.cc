// SPDX-License-Identifier: Apache-2.0
#include "attention/conformance/random_cases.h"

#include <algorithm>

namespace latent::conformance {

using ops::AttentionForm;
using testing::one_of;
using testing::Random;
using testing::Values;

ops::MlaAttentionAttrs attrs(AttentionForm form, int heads, int kv_rank, int rope, int nope, int v,
                             int page) {
  return {.form = form,
          .num_heads = heads,
          .kv_rank = kv_rank,
          .rope_dim = rope,
          .nope_dim = nope,
          .v_dim = v,
          .page_tokens = page,
          .softmax_scale = 0.1147214f};
}

namespace {

// A quantised cache: one scale, or one a block of 128 columns, which fits some latents.
void store_as_codes(Random& random, std::initializer_list<int> whole_blocks, Case* c) {
  c->cache_dtype = one_of(random, {DType::kF8E4M3, DType::kU8});
  c->cache_scale = one_of(random, {0.0109f, 0.25f, 1.0f, 3.7f});
  if (c->cache_dtype == DType::kU8) c->attrs.kv_rank = one_of(random, whole_blocks);
}

}  // namespace

Case random_case(Random& random) {
  Case c;
  c.seed = random.seed();
  c.attrs = attrs(one_of(random, {AttentionForm::kAbsorbed, AttentionForm::kMultiHead}),
                  one_of(random, {1, 2, 3, 7, 16, 20, 33}), one_of(random, {1, 7, 32, 64, 96, 127, 129, 256}),
                  one_of(random, {0, 2, 16, 32, 64}), one_of(random, {2, 7, 24, 128}),
                  one_of(random, {1, 5, 32, 64, 129}), one_of(random, {1, 16, 32, 64, 100, 128}));
  c.q_dtype = one_of(random, {DType::kF32, DType::kBF16, DType::kBF16});
  c.out_dtype = c.q_dtype;
  c.cache_dtype = one_of(random, {DType::kF32, DType::kF16, DType::kBF16, DType::kBF16});
  if (random.integer(0, 3) == 0) store_as_codes(random, {128, 256}, &c);
  c.kv_b_dtype = one_of(random, {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3});
  c.logit_scale = one_of(random, {0.0f, 1.0f, 5.0f, 20.0f, 100.0f, 1e4f});
  c.q_values =
      one_of(random, {Values::kNormal, Values::kNormal, Values::kOutliers, Values::kTies, Values::kZeros});
  c.cache_values = one_of(random, {Values::kNormal, Values::kNormal, Values::kUniform, Values::kTies});
  const int64_t num_requests = random.integer(0, 4);
  for (int64_t i = 0; i < num_requests; ++i) {
    const auto kv_len =
        static_cast<int>(one_of<int64_t>(random, {0, 1, 7, 127, 128, 129, random.integer(1, 600)}));
    c.requests.push_back({.q_len = static_cast<int>(random.integer(0, 8)), .kv_len = kv_len});
  }
  return c;
}

Case random_device_case(Random& random) {
  constexpr int64_t kMostWork = 60'000;  // products of a query with a key
  Case c;
  c.seed = random.seed();
  c.attrs = attrs(AttentionForm::kAbsorbed, one_of(random, {1, 2, 3, 5, 8, 16, 20, 33, 40, 64, 128}),
                  one_of(random, {256, 512, 512}), one_of(random, {0, 32, 64, 64}), 2, 1,
                  one_of(random, {16, 32, 64, 64, 128}));
  c.q_dtype = c.cache_dtype = c.out_dtype = one_of(random, {DType::kBF16, DType::kBF16, DType::kF16});
  if (random.integer(0, 2) == 0) store_as_codes(random, {512}, &c);
  if (c.cache_dtype == DType::kU8) c.q_dtype = c.out_dtype = DType::kBF16;  // as its rope keys are
  const bool narrow = c.q_dtype == DType::kF16;                             // 65504 at most
  c.logit_scale =
      narrow ? one_of(random, {0.0f, 1.0f, 20.0f}) : one_of(random, {0.0f, 1.0f, 5.0f, 100.0f, 1e4f});
  c.q_values = one_of(random, {Values::kNormal, Values::kNormal, Values::kTies, Values::kZeros,
                               narrow ? Values::kUniform : Values::kOutliers});
  c.cache_values = one_of(random, {Values::kNormal, Values::kNormal, Values::kUniform, Values::kTies});
  // Few of any length, many short ones, or one long one that many parts share.
  const int64_t kind = random.integer(0, 9), most = kind == 0 ? 300 : 6;
  if (kind < 2) c.attrs.num_heads = std::min(c.attrs.num_heads, 5);
  int64_t work = 0;
  for (int64_t i = kind == 1 ? most : random.integer(0, most); i > 0 && work < kMostWork; --i) {
    const int64_t longest = kind == 0 ? 40 : 700;
    const auto kv_len =
        static_cast<int>(one_of<int64_t>(random, {0, 1, 31, 64, 65, random.integer(1, longest)}));
    c.requests.push_back({.q_len = static_cast<int>(random.integer(0, 8)), .kv_len = kv_len});
    if (kind == 0) c.requests.back().q_len = static_cast<int>(random.integer(0, 2));
    work += int64_t{c.requests.back().q_len} * kv_len * c.attrs.num_heads;
  }
  if (kind == 0 && random.integer(0, 1) == 0)
    for (auto& request : c.requests) request.kv_len = c.requests[0].kv_len;
  if (kind == 1) c.requests = {{.q_len = 1, .kv_len = static_cast<int>(random.integer(1000, 9000))}};
  return c;
}

Layout random_layout(Random& random) {
  return {.seed = static_cast<uint64_t>(random.integer(0, 1 << 30)),
          .poison = one_of(random, {PoisonPattern::kNan, PoisonPattern::kInf, PoisonPattern::kLarge}),
          .padded_rows = static_cast<int>(random.integer(0, 5)),
          .padded_requests = static_cast<int>(random.integer(0, 3)),
          .spare_columns = static_cast<int>(random.integer(0, 3)),
          .strided = random.integer(0, 1) == 1,
          .with_lse = random.integer(0, 3) != 0,
          .num_threads = static_cast<int>(random.integer(1, 3)),
          .deterministic = random.integer(0, 1) == 1};
}

}  // namespace latent::conformance
