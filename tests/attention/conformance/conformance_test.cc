// SPDX-License-Identifier: Apache-2.0
// What every attention backend of the build must do, whatever it runs on. A backend is tested by being in
// attention::backends(); nothing here knows one by name. LATENT_TEST_CASES sets the number of random cases.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "attention/conformance/oracle.h"
#include "attention/conformance/problem.h"
#include "testing/compare.h"
#include "testing/poison.h"

namespace latent::conformance {
namespace {

using ops::AttentionForm;
using testing::Random;
using testing::same_bits;
using testing::test_seed;
using testing::Values;

int num_random_cases(int fallback) {
  const char* count = std::getenv("LATENT_TEST_CASES");
  return count == nullptr ? fallback : std::atoi(count);
}

ops::MlaAttentionAttrs attrs(AttentionForm form, int heads, int kv_rank, int rope, int nope, int v,
                             int page = 64) {
  return {.form = form,
          .num_heads = heads,
          .kv_rank = kv_rank,
          .rope_dim = rope,
          .nope_dim = nope,
          .v_dim = v,
          .page_tokens = page,
          .softmax_scale = 0.1147214f};
}

class Conformance : public ::testing::TestWithParam<const attention::Backend*> {
 protected:
  const attention::Backend& backend() const { return *GetParam(); }
  bool serves(const Case& c) const { return !backend().supports(c.desc()).has_value(); }

  Outputs run(const Inputs& in, const Layout& layout = {}) const {
    return conformance::run(backend(), in, layout);
  }

  void expect_right(const Case& c, const Layout& layout = {}) const {
    if (!serves(c)) return;
    const Inputs in(c);
    EXPECT_TRUE(is_right(run(in, layout), find_truth(in, weight_roundoff(backend(), c)), in));
  }

  // Both outputs, for rows that both have.
  static void expect_same(const Outputs& a, const Outputs& b, const std::string& what) {
    const int64_t rows = std::min(a.out.shape()[0], b.out.shape()[0]);
    EXPECT_TRUE(same_bits(a.out.view().slice(0, 0, rows), b.out.view().slice(0, 0, rows))) << what;
    if (a.lse.view().empty() || b.lse.view().empty()) return;
    EXPECT_TRUE(same_bits(a.lse.view().slice(0, 0, rows), b.lse.view().slice(0, 0, rows))) << what;
  }
};

template <class T>
T one_of(Random& random, std::initializer_list<T> values) {
  return values.begin()[random.integer(0, static_cast<int64_t>(values.size()) - 1)];
}

// Small enough for a scalar fp64 oracle, odd enough to find what real shapes hide.
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
  c.kv_b_dtype = one_of(random, {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3});
  c.logit_scale = one_of(random, {0.0f, 1.0f, 5.0f, 20.0f, 100.0f, 1e4f});
  c.q_values =
      one_of(random, {Values::kNormal, Values::kNormal, Values::kOutliers, Values::kTies, Values::kZeros});
  c.cache_values = one_of(random, {Values::kNormal, Values::kNormal, Values::kUniform, Values::kTies});
  const int64_t num_requests = random.integer(0, 4);
  for (int64_t i = 0; i < num_requests; ++i) {
    const auto kv_len =
        static_cast<int>(one_of<int64_t>(random, {0, 1, 7, 127, 128, 129, random.integer(1, 700)}));
    c.requests.push_back({.q_len = static_cast<int>(random.integer(0, 8)), .kv_len = kv_len});
  }
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

// contract: C1 C2 C3 C4 C9
TEST_P(Conformance, random_shapes_are_within_the_bound_and_every_layout_gives_the_same_bits) {
  const int count = num_random_cases(80);
  for (int i = 0; i < count && !HasFailure(); ++i) {
    Random random(test_seed(static_cast<uint64_t>(i)));
    const Case c = random_case(random);
    if (!serves(c)) continue;
    const Inputs in(c);
    const Outputs first = run(in, random_layout(random));
    EXPECT_TRUE(is_right(first, find_truth(in, weight_roundoff(backend(), c)), in));
    Layout other = random_layout(random);
    expect_same(first, run(in, other), to_string(c));
  }
}

std::string backend_name(const ::testing::TestParamInfo<const attention::Backend*>& info) {
  return info.param->name();
}

INSTANTIATE_TEST_SUITE_P(All, Conformance,
                         ::testing::ValuesIn(attention::backends().begin(), attention::backends().end()),
                         backend_name);

}  // namespace
}  // namespace latent::conformance
