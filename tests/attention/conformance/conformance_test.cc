// SPDX-License-Identifier: Apache-2.0
// What every attention backend must do, whatever it runs on. A backend is tested by being in
// attention::backends(); nothing here knows one by name. What was not built, or finds no GPU here, is skipped
// with the reason. LATENT_TEST_CASES sets the number of random cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "attention/conformance/oracle.h"
#include "attention/conformance/problem.h"
#include "attention/conformance/random_cases.h"
#include "base/parallel.h"
#include "testing/compare.h"
#include "testing/poison.h"

namespace latent::conformance {
namespace {

using ops::AttentionForm;
using testing::one_of;
using testing::Random;
using testing::same_bits;
using testing::test_seed;
using testing::Values;

int num_random_cases(int fallback) {
  const char* count = std::getenv("LATENT_TEST_CASES");
  return count == nullptr ? fallback : std::atoi(count);
}

class Conformance : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    for (const attention::AbsentBackend& absent : attention::absent_backends())
      if (GetParam() == absent.name) GTEST_SKIP() << absent.name << " " << absent.reason;
    for (const attention::Backend* b : attention::backends())
      if (GetParam() == b->name()) backend_ = b;
    on_device_ = lives_on_device(backend());
    if (!on_device_) return;
    const Case usual{.attrs = attrs(AttentionForm::kAbsorbed, 16, 512, 64, 128, 128)};
    if (const auto refusal = backend().supports(usual.desc(on_device_)))
      GTEST_SKIP() << backend().name() << " " << refusal->reason;
  }

  const attention::Backend& backend() const { return *backend_; }
  bool on_device() const { return on_device_; }
  bool serves(const Case& c) const { return !backend().supports(c.desc(on_device_)).has_value(); }

  // Kernels for a device are built for a few widths: the nearest of those, by which the case loses nothing.
  Case fit(Case c) const {
    if (!on_device_) return c;
    ops::MlaAttentionAttrs& a = c.attrs;
    a.kv_rank = a.kv_rank <= 256 ? 256 : 512;
    a.rope_dim = a.rope_dim == 0 ? 0 : a.rope_dim <= 32 ? 32 : 64;
    return c;
  }

  // Runs body(i) for i in [0, count) until one fails; on all cores for a backend that leaves them alone.
  template <class Body>
  void for_cases(int count, Body&& body) const {
    std::atomic<int> next = 0;
    parallel_team(on_device_ ? available_cores() : 1, [&](int, int) {
      for (int i = next++; i < count && !HasFailure(); i = next++) body(i);
    });
  }

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

 private:
  const attention::Backend* backend_ = nullptr;
  bool on_device_ = false;
};

// contract: C1 C2 C3 C4 C9
TEST_P(Conformance, random_shapes_are_within_the_bound_and_every_layout_gives_the_same_bits) {
  for_cases(num_random_cases(on_device() ? 2000 : 60), [&](int i) {
    Random random(test_seed(static_cast<uint64_t>(i)));
    const Case c = on_device() ? random_device_case(random) : random_case(random);
    if (!serves(c)) return;
    const Inputs in(c);
    const Outputs first = run(in, random_layout(random));
    EXPECT_TRUE(is_right(first, find_truth(in, weight_roundoff(backend(), c)), in));
    Layout other = random_layout(random);
    other.launches = static_cast<int>(random.integer(1, 3));
    expect_same(first, run(in, other), to_string(c));
  });
}

// Real shapes at a size that averages the rounding out: contract "How numbers are judged".
TEST_P(Conformance, the_contracts_frobenius_bound_holds_while_logits_stay_below_30) {
  for (const AttentionForm form : {AttentionForm::kAbsorbed, AttentionForm::kMultiHead}) {
    for (const float scale : {1.0f, 12.0f}) {  // deviation up to about 4: 30 is out of reach
      Case c = fit({.attrs = attrs(form, 16, 512, 64, 128, 128), .requests = {{6, 130}, {1, 300}, {1, 40}}});
      if (form == AttentionForm::kMultiHead) c.requests = {{12, 70}};
      c.logit_scale = scale;
      c.seed = test_seed(static_cast<uint64_t>(scale));
      if (!serves(c)) continue;
      const Inputs in(c);
      const Truth truth = find_truth(in, weight_roundoff(backend(), c));
      ASSERT_LE(truth.max_logit, 30) << to_string(c);
      const Outputs got = run(in);
      EXPECT_TRUE(is_right(got, truth, in));
      // Weights rounded to u_w lose up to u_w / sqrt(3) more, root mean square.
      const double weights = weight_roundoff(backend(), c) / std::sqrt(3.0);
      EXPECT_LE(frobenius_error(got, truth), std::hypot(2.2e-3, weights)) << to_string(c);
      RecordProperty("frobenius_error", std::to_string(frobenius_error(got, truth)));
    }
  }
}

// B1, B3, B5: quantised caches whose scales are no powers of two; what one reader forgets shows.
TEST_P(Conformance, caches_of_codes_are_read_with_their_scales) {
  for (const AttentionForm form : {AttentionForm::kAbsorbed, AttentionForm::kMultiHead})
    for (const DType dtype : {DType::kF8E4M3, DType::kU8})
      for (const float scale : {0.0109f, 0.25f, 0.7f, 3.7f}) {
        Case c = fit({.attrs = attrs(form, 16, 512, 64, 24, 40), .requests = {{1, 1}, {1, 130}, {2, 300}}});
        c.cache_dtype = dtype;
        c.cache_scale = scale;
        c.seed = test_seed(static_cast<uint64_t>(scale * 64));
        expect_right(c, {.padded_rows = 2, .strided = true});
      }
}

// A15: unit inputs hide an overflow in the softmax or its LSE.
TEST_P(Conformance, logits_of_ten_thousand_are_right) {
  for (const AttentionForm form : {AttentionForm::kAbsorbed, AttentionForm::kMultiHead}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Case c = fit({.attrs = attrs(form, 16, 256, 32, 64, 64), .requests = {{1, 600}, {2, 40}}});
      c.q_dtype = c.cache_dtype = c.out_dtype = dtype;
      c.logit_scale = 1e4f;
      c.seed = test_seed();
      expect_right(c);
    }
  }
}

TEST_P(Conformance, equal_keys_share_their_weight_equally) {
  for (const AttentionForm form : {AttentionForm::kAbsorbed, AttentionForm::kMultiHead}) {
    Case c = fit({.attrs = attrs(form, 3, 64, 16, 24, 40), .requests = {{2, 130}}});
    c.logit_scale = 0;  // all logits zero: the mean of the values
    c.seed = test_seed();
    expect_right(c);
    c.cache_values = Values::kTies;
    c.q_values = Values::kTies;
    c.logit_scale = 4;
    expect_right(c);
  }
}

// A18: other latents than 512, three runs each.
TEST_P(Conformance, every_latent_and_rope_width_gives_the_same_bits_run_after_run) {
  for (const int kv_rank : {64, 128, 256, 512})
    for (const int rope : {16, 32, 64}) {
      Case c = fit({.attrs = attrs(AttentionForm::kAbsorbed, 5, kv_rank, rope, 64, 64),
                    .requests = {{1, 90}, {1, 33}}});
      c.seed = test_seed(static_cast<uint64_t>(kv_rank + rope));
      if (!serves(c)) continue;
      const Inputs in(c);
      const Outputs first = run(in);
      EXPECT_TRUE(is_right(first, find_truth(in, weight_roundoff(backend(), c)), in));
      for (int again = 0; again < 2; ++again) expect_same(first, run(in), to_string(c));
    }
}

// A11: whatever stands in a page after the last token must not be read.
TEST_P(Conformance, every_length_is_right_in_a_pool_of_nan) {
  for (const AttentionForm form : {AttentionForm::kAbsorbed, AttentionForm::kMultiHead}) {
    for (int kv_len = 1; kv_len <= 260; kv_len += kv_len < 70 ? 1 : 13) {
      Case c = fit({.attrs = attrs(form, 2, 32, 8, 8, 8), .requests = {{std::min(kv_len, 2), kv_len}}});
      c.seed = test_seed(static_cast<uint64_t>(kv_len));
      expect_right(c);
    }
  }
}

// C3: three patterns in every byte that nobody wrote, and in every id past the end of a table.
TEST_P(Conformance, results_are_the_same_bits_under_every_poison) {
  for (const AttentionForm form : {AttentionForm::kAbsorbed, AttentionForm::kMultiHead}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Case c =
          fit({.attrs = attrs(form, 20, 128, 32, 48, 40), .requests = {{1, 77}, {3, 600}, {2, 0}, {4, 2}}});
      c.q_dtype = c.cache_dtype = c.out_dtype = dtype;
      c.seed = test_seed();
      if (!serves(c)) continue;
      const Inputs in(c);
      Layout layout{.padded_rows = 3, .padded_requests = 2};
      const Outputs first = run(in, layout);
      EXPECT_TRUE(testing::all_finite(first.out.view())) << to_string(c);
      for (const PoisonPattern pattern : testing::kPoisonPatterns) {
        layout.poison = pattern;
        expect_same(first, run(in, layout), latent::to_string(pattern) + (" " + to_string(c)));
      }
    }
  }
}

// C4. The padded rows' content is the pattern.
TEST_P(Conformance, padding_changes_nothing) {
  for (const AttentionForm form : {AttentionForm::kAbsorbed, AttentionForm::kMultiHead}) {
    Case c = fit({.attrs = attrs(form, 16, 64, 16, 24, 32), .requests = {{1, 129}, {1, 5}, {2, 700}}});
    c.seed = test_seed();
    if (!serves(c)) continue;
    const Inputs in(c);
    const Outputs first = run(in);
    int i = 0;
    for (const int rows : {1, 7, 60, 300})
      for (const int requests : {0, 1, 12, 200})
        expect_same(
            first,
            run(in, {.poison = testing::kPoisonPatterns[i++ % 3],
                     .padded_rows = rows,
                     .padded_requests = requests}),
            std::to_string(rows) + " rows, " + std::to_string(requests) + " requests: " + to_string(c));
  }
}

// C1, A13: no requests, requests without rows or keys, a table without columns, nothing but padding.
TEST_P(Conformance, rows_without_keys_are_written_as_empty) {
  for (const AttentionForm form : {AttentionForm::kAbsorbed, AttentionForm::kMultiHead}) {
    const std::vector<Request> batches[] = {
        {}, {{3, 0}}, {{0, 50}}, {{2, 0}, {1, 5}, {1, 0}, {4, 17}}, {{5, 2}}};
    for (const std::vector<Request>& requests : batches)
      for (const int padded : {0, 4}) {
        Case c = fit({.attrs = attrs(form, 3, 40, 6, 10, 12), .requests = requests});
        c.seed = test_seed();
        expect_right(c, {.padded_rows = padded, .padded_requests = padded, .spare_columns = 0});
      }
  }
}

// C5 and A7: alone, in a batch, on any number of threads.
TEST_P(Conformance, a_request_alone_gives_the_bits_it_gives_in_a_batch) {
  if (on_device()) GTEST_SKIP() << backend().name() << " has no deterministic form";
  for (int i = 0; i < num_random_cases(12) && !HasFailure(); ++i) {
    Random random(test_seed(static_cast<uint64_t>(i)));
    Case c = random_case(random);
    c.requests = {{1, 1300},
                  {static_cast<int>(random.integer(1, 5)), static_cast<int>(random.integer(0, 300))},
                  {8, 515}};
    if (!serves(c)) continue;
    const Inputs in(c);
    const Outputs batched = run(in, {.num_threads = 2, .deterministic = true});
    int64_t row = 0;
    for (size_t s = 0; s < c.requests.size(); row += c.requests[s++].q_len) {
      const Outputs solo = run(only_request(in, static_cast<int>(s)),
                               {.seed = 5, .num_threads = 1 + static_cast<int>(s), .deterministic = true});
      const int64_t end = row + c.requests[s].q_len;
      EXPECT_TRUE(same_bits(batched.out.view().slice(0, row, end), solo.out.view())) << to_string(c);
      EXPECT_TRUE(same_bits(batched.lse.view().slice(0, row, end), solo.lse.view())) << to_string(c);
    }
  }
}

// C5 (ii), A2, A5: a prompt cut anywhere; the earlier part's keys are in the cache by then.
TEST_P(Conformance, a_prompt_in_chunks_gives_the_bits_of_the_whole) {
  if (on_device()) GTEST_SKIP() << backend().name() << " has no deterministic form";
  for (const AttentionForm form : {AttentionForm::kAbsorbed, AttentionForm::kMultiHead}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Case c = fit({.attrs = attrs(form, 2, 64, 16, 24, 40), .requests = {{300, 310}}});
      c.q_dtype = c.cache_dtype = c.kv_b_dtype = c.out_dtype = dtype;
      c.seed = test_seed();
      if (!serves(c)) continue;
      const Inputs in(c);
      const Outputs whole = run(in, {.deterministic = true});
      EXPECT_TRUE(is_right(whole, find_truth(in, weight_roundoff(backend(), c)), in));
      for (const int chunk : {1, 16, 64, 100}) {
        for (int first = 0; first < 300; first += chunk) {
          if (chunk == 1 && first % 37 != 0) continue;
          const int last = std::min(300, first + chunk);
          const Outputs part = run(only_rows(in, 0, first, last), {.deterministic = true});
          ASSERT_TRUE(same_bits(whole.out.view().slice(0, first, last), part.out.view()))
              << first << " " << to_string(c);
          ASSERT_TRUE(same_bits(whole.lse.view().slice(0, first, last), part.lse.view())) << first;
        }
      }
    }
  }
}

// Both forms of the same attention, in f32: q . W_UK is taken in fp64 and rounded once.
TEST_P(Conformance, absorbed_and_multi_head_agree) {
  Case up{.attrs = attrs(AttentionForm::kMultiHead, 4, 64, 16, 24, 40), .requests = {{3, 150}, {1, 70}}};
  up.q_dtype = up.cache_dtype = up.kv_b_dtype = up.out_dtype = DType::kF32;
  up.seed = test_seed();
  Case down = up;
  down.attrs.form = AttentionForm::kAbsorbed;
  if (!serves(up) || !serves(down)) GTEST_SKIP() << backend().name() << " does not have both forms in f32";
  const Inputs multi_head(up);
  Inputs absorbed(down);
  copy_elements(multi_head.q_pe.view(), absorbed.q_pe.view());
  for (size_t s = 0; s < up.requests.size(); ++s)
    copy_elements(multi_head.latents[s].view(), absorbed.latents[s].view());
  const auto weight = [&](int64_t head, int64_t row) {
    return multi_head.kv_b.view().values.row<float>(head * 64 + row);
  };
  for (int64_t t = 0; t < up.num_rows(); ++t)
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t k = 0; k < 64; ++k) {
        double sum = 0;
        for (int64_t n = 0; n < 24; ++n)
          sum += double{multi_head.q_nope.view().at(t).row<float>(h)[n]} * weight(h, n)[k];
        absorbed.q_nope.view().at(t).row<float>(h)[k] = static_cast<float>(sum);
      }
  const Outputs a = run(absorbed), m = run(multi_head);
  const Truth truth = find_truth(multi_head, 0), latent_truth = find_truth(absorbed, 0);
  // Each form keeps within its own bound of the truth; the absorbed one is projected up here in fp64, its
  // bound with it.
  for (int64_t t = 0; t < up.num_rows(); ++t)
    for (int64_t h = 0; h < 4; ++h) {
      const auto row = static_cast<size_t>(t * 4 + h);
      EXPECT_NEAR(a.lse.view().row<float>(t)[h], m.lse.view().row<float>(t)[h],
                  truth.lse_bound[row] + latent_truth.lse_bound[row]);
      for (int64_t v = 0; v < 40; ++v) {
        double sum = 0, bound = truth.out_bound[row * 40 + static_cast<size_t>(v)];
        for (int64_t k = 0; k < 64; ++k) {
          const double w = weight(h, 24 + v)[k];
          sum += double{a.out.view().at(t).row<float>(h)[k]} * w;
          bound += std::abs(w) * latent_truth.out_bound[row * 64 + static_cast<size_t>(k)];
        }
        EXPECT_NEAR(sum, m.out.view().at(t).row<float>(h)[v], bound);
      }
    }
}

// Not asking for the LSE changes nothing else.
TEST_P(Conformance, the_lse_is_optional) {
  for (const AttentionForm form : {AttentionForm::kAbsorbed, AttentionForm::kMultiHead}) {
    Case c = fit({.attrs = attrs(form, 16, 64, 16, 24, 32), .requests = {{1, 1200}, {2, 40}}});
    c.seed = test_seed();
    if (!serves(c)) continue;
    const Inputs in(c);
    expect_same(run(in, {.with_lse = true}), run(in, {.with_lse = false}), to_string(c));
  }
}

// C6: a NaN in a query or a key reaches the rows that see it, and no others.
TEST_P(Conformance, a_bad_key_ends_the_rows_that_see_it_and_no_others) {
  for (const AttentionForm form : {AttentionForm::kAbsorbed, AttentionForm::kMultiHead}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Case c = fit({.attrs = attrs(form, 16, 64, 16, 24, 32), .requests = {{1, 40}, {1, 700}, {1, 70}}});
      c.q_dtype = c.cache_dtype = c.out_dtype = dtype;
      c.seed = test_seed();
      if (!serves(c)) continue;
      Inputs in(c);
      const Outputs good = run(in);
      testing::poison(in.latents[1].view().slice(0, 33, 34), PoisonPattern::kNan);
      const Outputs bad = run(in);
      for (const int64_t row : {0, 2})
        EXPECT_TRUE(same_bits(good.out.view().at(row), bad.out.view().at(row))) << to_string(c);
      for (int64_t head = 0; head < 16; ++head)
        EXPECT_FALSE(testing::all_finite(bad.out.view().slice(0, 1, 2).slice(1, head, head + 1)))
            << to_string(c);
    }
  }
}

// No number of heads is padded by the caller.
TEST_P(Conformance, any_number_of_heads) {
  constexpr int kHeads[] = {1, 2, 4, 5, 8, 16, 17, 20, 32, 40, 64, 96, 128};
  for_cases(static_cast<int>(std::size(kHeads)), [&](int i) {
    Case c = fit({.attrs = attrs(AttentionForm::kAbsorbed, kHeads[i], 512, 64, 2, 1),
                  .requests = {{1, 1}, {1, 130}, {2, 300}}});
    c.seed = test_seed(static_cast<uint64_t>(i));
    expect_right(c);
  });
}

// Split over whatever a backend splits over, and merged.
TEST_P(Conformance, long_requests_are_right) {
  std::vector<int> lens = {1000, 4096, 8191, 20000};
  if (on_device()) lens.push_back(60000);  // more tiles for each part of a large GPU than it holds at once
  for_cases(static_cast<int>(lens.size()), [&](int i) {
    for (const int heads : {1, 3}) {
      Case c = fit({.attrs = attrs(AttentionForm::kAbsorbed, heads, 256, 32, 2, 1),
                    .requests = {{1, lens[static_cast<size_t>(i)]}, {2, 5}}});
      c.seed = test_seed(static_cast<uint64_t>(i));
      expect_right(c);
    }
  });
}

// The layers of a step share a plan and a workspace.
TEST_P(Conformance, every_launch_on_one_plan_gives_the_same_bits) {
  for (const int heads : {2, 16, 40}) {
    Case c = fit({.attrs = attrs(AttentionForm::kAbsorbed, heads, 256, 32, 24, 32),
                  .requests = {{1, 1900}, {2, 40}, {1, 0}, {1, 333}}});
    c.seed = test_seed(static_cast<uint64_t>(heads));
    if (!serves(c)) continue;
    const Inputs in(c);
    const Outputs once = run(in);
    for (const int launches : {2, 20})
      expect_same(once, run(in, {.seed = 9, .launches = launches}), to_string(c));
  }
}

// Offsets into the cache take 64 bits, in bytes and in elements.
TEST_P(Conformance, pages_beyond_8_gib_are_read_where_they_are) {
  Case c = fit({.attrs = attrs(AttentionForm::kAbsorbed, 3, 512, 64, 2, 1), .requests = {{1, 300}, {2, 70}}});
  c.seed = test_seed();
  const int64_t page_bytes = int64_t{c.attrs.page_tokens} * (c.attrs.kv_rank + c.attrs.rope_dim) * 2;
  const auto pages = static_cast<int>((int64_t{9} << 30) / page_bytes);
  const Inputs in(c);
  const Outputs near = run(in), far = run(in, {.unused_pages = pages});
  EXPECT_TRUE(is_right(far, find_truth(in, weight_roundoff(backend(), c)), in));
  expect_same(near, far, to_string(c));
}

// The host that plans need not know the lengths that lie on the device.
TEST_P(Conformance, a_plan_made_from_upper_bounds_gives_the_same_bits) {
  if (!on_device()) GTEST_SKIP() << backend().name() << " plans from the lengths themselves";
  for (const int heads : {2, 16, 128}) {
    Case c = fit({.attrs = attrs(AttentionForm::kAbsorbed, heads, 512, 64, 2, 1),
                  .requests = {{1, 900}, {2, 40}, {1, 0}, {1, 333}}});
    c.seed = test_seed(static_cast<uint64_t>(heads));
    const Inputs in(c);
    expect_same(run(in), run(in, {.exact_lengths = false}), to_string(c));
  }
}

std::string backend_name(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

std::vector<std::string> all_backends() {
  std::vector<std::string> names;
  for (const attention::Backend* b : attention::backends()) names.emplace_back(b->name());
  for (const attention::AbsentBackend& absent : attention::absent_backends()) names.emplace_back(absent.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Conformance, ::testing::ValuesIn(all_backends()), backend_name);

}  // namespace
}  // namespace latent::conformance
