// SPDX-License-Identifier: Apache-2.0
// What every attention backend for prompts must do. A backend is tested by being in
// attention::prefill_backends(); nothing here knows one by name. LATENT_TEST_CASES sets the number of random
// cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "attention/conformance/prefill_problem.h"
#include "attention/merge.h"
#include "base/parallel.h"
#include "tensor/convert.h"
#include "testing/compare.h"
#include "testing/poison.h"

namespace latent::conformance {
namespace {

using testing::one_of;
using testing::Random;
using testing::same_bits;
using testing::test_seed;
using testing::Values;

struct Widths {
  int nope, rope, v;
};

ops::PrefillAttentionAttrs attrs(int heads, const Widths& w, bool causal = true) {
  return {.num_heads = heads,
          .nope_dim = w.nope,
          .rope_dim = w.rope,
          .v_dim = w.v,
          .softmax_scale = 0.1147214f,
          .causal = causal};
}

class PrefillConformance : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    for (const attention::PrefillBackend* b : attention::prefill_backends())
      if (GetParam() == b->name()) backend_ = b;
    if (backend_ == nullptr) GTEST_SKIP() << GetParam() << " was not built";
    on_device_ = lives_on_device(*backend_);
    const PrefillCase usual{.attrs = attrs(2, {128, 64, 128})};
    if (const auto refusal = backend_->supports(usual.desc(on_device_)))
      GTEST_SKIP() << backend_->name() << " " << refusal->reason;
  }

  const attention::PrefillBackend& backend() const { return *backend_; }
  bool on_device() const { return on_device_; }
  bool serves(const PrefillCase& c) const { return !backend_->supports(c.desc(on_device_)).has_value(); }

  int num_random_cases() const {
    const char* count = std::getenv("LATENT_TEST_CASES");
    return count != nullptr ? std::atoi(count) : on_device_ ? 600 : 40;
  }

  // Of the widths that some kernel is built for, those that this backend has; on a CPU odd ones instead.
  std::vector<Widths> widths() const {
    if (!on_device_) return {{3, 2, 5}, {24, 16, 40}, {0, 8, 7}, {9, 0, 65}};
    std::vector<Widths> served;
    for (const Widths w :
         {Widths{128, 64, 128}, {192, 64, 256}, {64, 32, 64}, {40, 24, 72}, {0, 64, 64}, {64, 0, 8}})
      if (serves({.attrs = attrs(1, w)})) served.push_back(w);
    return served;
  }

  template <class Body>
  void for_cases(int count, Body&& body) const {
    std::atomic<int> next = 0;
    parallel_team(on_device_ ? available_cores() : 1, [&](int, int) {
      for (int i = next++; i < count && !HasFailure(); i = next++) body(i);
    });
  }

  PrefillOutputs run(const PrefillInputs& in, const PrefillLayout& layout = {}) const {
    return conformance::run(backend(), in, layout);
  }
  void expect_right(const PrefillCase& c, const PrefillLayout& layout = {}) const {
    const PrefillInputs in(c);
    EXPECT_TRUE(is_right(run(in, layout), find_truth(in, weight_roundoff(backend(), c)), in));
  }
  static void expect_same(const PrefillOutputs& a, const PrefillOutputs& b, const std::string& what) {
    const int64_t rows = std::min(a.out.shape()[0], b.out.shape()[0]);
    EXPECT_TRUE(same_bits(a.out.view().slice(0, 0, rows), b.out.view().slice(0, 0, rows))) << what;
    if (a.lse.view().empty() || b.lse.view().empty()) return;
    EXPECT_TRUE(same_bits(a.lse.view().slice(0, 0, rows), b.lse.view().slice(0, 0, rows))) << what;
  }

  PrefillCase random_case(Random& random) const {
    constexpr int64_t kMostWork = 150'000;  // products of a query with a key
    const std::vector<Widths> all = widths();
    PrefillCase c;
    c.seed = random.seed();
    c.attrs = attrs(one_of(random, {1, 1, 2, 3, 5, 20}),
                    all[static_cast<size_t>(random.integer(0, static_cast<int64_t>(all.size()) - 1))],
                    random.integer(0, 2) != 0);
    c.dtype = on_device_ ? one_of(random, {DType::kBF16, DType::kBF16, DType::kF16})
                         : one_of(random, {DType::kF32, DType::kBF16, DType::kF16});
    c.out_dtype = random.integer(0, 2) == 0 ? DType::kF32 : c.dtype;
    const bool narrow = c.dtype == DType::kF16;  // 65504 at most
    c.logit_scale =
        narrow ? one_of(random, {0.0f, 1.0f, 20.0f}) : one_of(random, {0.0f, 1.0f, 5.0f, 100.0f, 1e4f});
    c.q_values = one_of(random, {Values::kNormal, Values::kNormal, Values::kTies, Values::kZeros,
                                 narrow ? Values::kUniform : Values::kOutliers});
    c.kv_values = one_of(random, {Values::kNormal, Values::kNormal, Values::kUniform, Values::kTies});
    // Few of any length, or many short ones.
    const bool many = on_device_ && random.integer(0, 7) == 0;
    const int64_t count = many ? random.integer(30, 200) : random.integer(0, 4);
    const int64_t longest = many ? 20 : on_device_ ? 400 : 40;
    int64_t work = 0;
    for (int64_t i = 0; i < count && work < kMostWork; ++i) {
      const auto q_len = static_cast<int>(one_of<int64_t>(random, {0, 1, random.integer(1, longest)}));
      const auto kv_len = static_cast<int>(one_of<int64_t>(
          random, {0, q_len, q_len, q_len + random.integer(0, longest), random.integer(0, longest)}));
      c.requests.push_back({.q_len = q_len, .kv_len = kv_len});
      work += int64_t{q_len} * kv_len * c.attrs.num_heads;
    }
    return c;
  }

  static PrefillLayout random_layout(Random& random) {
    return {.poison = one_of(random, {PoisonPattern::kNan, PoisonPattern::kInf, PoisonPattern::kLarge}),
            .padded_rows = static_cast<int>(random.integer(0, 5)),
            .padded_keys = static_cast<int>(random.integer(0, 5)),
            .padded_requests = static_cast<int>(random.integer(0, 3)),
            .strided = random.integer(0, 1) == 1,
            .shared_rope = random.integer(0, 2) != 0,
            .with_lse = random.integer(0, 3) != 0};
  }

 private:
  const attention::PrefillBackend* backend_ = nullptr;
  bool on_device_ = false;
};

// contract: C1 C2 C3 C4 C9
TEST_P(PrefillConformance, random_shapes_are_within_the_bound_and_every_layout_gives_the_same_bits) {
  for_cases(num_random_cases(), [&](int i) {
    Random random(test_seed(static_cast<uint64_t>(i)));
    const PrefillCase c = random_case(random);
    if (!serves(c)) return;
    const PrefillInputs in(c);
    const PrefillOutputs first = run(in, random_layout(random));
    EXPECT_TRUE(is_right(first, find_truth(in, weight_roundoff(backend(), c)), in));
    PrefillLayout other = random_layout(random);
    other.launches = static_cast<int>(random.integer(1, 3));
    expect_same(first, run(in, other), to_string(c));
  });
}

// Contract "How numbers are judged"; as for decode, weights rounded to u lose up to u / sqrt(3) more.
TEST_P(PrefillConformance, the_contracts_frobenius_bound_holds_while_logits_stay_below_30) {
  for (const Widths& w : widths())
    for (const float scale : {1.0f, 12.0f}) {
      PrefillCase c{.attrs = attrs(2, w), .requests = {{70, 70}, {20, 150}}};
      c.logit_scale = scale;
      c.seed = test_seed(static_cast<uint64_t>(scale));
      const PrefillInputs in(c);
      const PrefillTruth truth = find_truth(in, weight_roundoff(backend(), c));
      ASSERT_LE(truth.max_logit, 30) << to_string(c);
      const PrefillOutputs got = run(in);
      EXPECT_TRUE(is_right(got, truth, in));
      EXPECT_LE(frobenius_error(got, truth),
                std::hypot(2.2e-3, weight_roundoff(backend(), c) / std::sqrt(3.0)))
          << to_string(c);
      RecordProperty("frobenius_error", std::to_string(frobenius_error(got, truth)));
    }
}

TEST_P(PrefillConformance, logits_of_ten_thousand_are_right) {
  for (const Widths& w : widths()) {
    PrefillCase c{.attrs = attrs(2, w), .requests = {{90, 90}, {7, 200}}};
    c.logit_scale = 1e4f;
    c.seed = test_seed();
    expect_right(c);
  }
}

// Every number of rows and keys around a tile's, in a sea of NaN.
TEST_P(PrefillConformance, every_length_is_right_beside_nan) {
  const int step = on_device() ? 3 : 29;
  for (const bool causal : {true, false})
    for_cases(270 / step, [&](int i) {
      const int len = 1 + i * step;
      PrefillCase c{.attrs = attrs(1, widths().front(), causal),
                    .requests = {{len, len}, {3, len}, {len, 5}, {2, 2}}};
      c.seed = test_seed(static_cast<uint64_t>(len));
      expect_right(c, {.padded_rows = 1, .padded_keys = 1});
    });
}

// contract: C3
TEST_P(PrefillConformance, results_are_the_same_bits_under_every_poison) {
  for (const Widths& w : widths()) {
    PrefillCase c{.attrs = attrs(3, w), .requests = {{33, 77}, {3, 150}, {2, 0}, {4, 2}, {0, 9}}};
    c.seed = test_seed();
    const PrefillInputs in(c);
    PrefillLayout layout{.padded_rows = 3, .padded_keys = 4, .padded_requests = 2};
    const PrefillOutputs first = run(in, layout);
    EXPECT_TRUE(testing::all_finite(first.out.view())) << to_string(c);
    for (const PoisonPattern pattern : testing::kPoisonPatterns) {
      layout.poison = pattern;
      expect_same(first, run(in, layout), latent::to_string(pattern) + (" " + to_string(c)));
    }
  }
}

// contract: C4
TEST_P(PrefillConformance, padding_changes_nothing) {
  PrefillCase c{.attrs = attrs(2, widths().front()), .requests = {{40, 129}, {1, 5}, {2, 100}}};
  c.seed = test_seed();
  const PrefillInputs in(c);
  const PrefillOutputs first = run(in);
  for (const int padded_rows : {0, 1, 60, 700})
    for (const int requests : {0, 12, 200})
      expect_same(first,
                  run(in, {.padded_rows = padded_rows, .padded_keys = requests, .padded_requests = requests}),
                  std::to_string(padded_rows) + " rows, " + std::to_string(requests) + " requests");
}

// contract: C1
TEST_P(PrefillConformance, rows_without_keys_are_written_as_empty) {
  const std::vector<PrefillRequest> batches[] = {
      {}, {{3, 0}}, {{0, 50}}, {{2, 0}, {1, 5}, {1, 0}, {130, 17}}, {{5, 2}}, {{300, 0}}};
  for (const std::vector<PrefillRequest>& requests : batches)
    for (const bool causal : {true, false})
      for (const int padded : {0, 4}) {
        PrefillCase c{.attrs = attrs(3, widths().front(), causal), .requests = requests};
        c.seed = test_seed();
        expect_right(c, {.padded_rows = padded, .padded_keys = padded, .padded_requests = padded});
      }
}

TEST_P(PrefillConformance, a_bad_key_ends_the_rows_of_its_request_and_no_others) {
  PrefillCase c{.attrs = attrs(2, widths().front()), .requests = {{40, 40}, {30, 60}, {50, 50}}};
  c.seed = test_seed();
  PrefillInputs in(c);
  const PrefillOutputs good = run(in);
  for (const Tensor* tensor : {&in.k_nope, &in.v})
    testing::poison(tensor->view().slice(0, 40 + 7, 40 + 8), PoisonPattern::kNan);
  const PrefillOutputs bad = run(in);
  for (const auto& [begin, end] : {std::pair{0, 40}, {70, 120}})
    EXPECT_TRUE(same_bits(good.out.view().slice(0, begin, end), bad.out.view().slice(0, begin, end)));
  for (int row = 40; row < 70; ++row)
    for (int head = 0; head < 2; ++head)
      EXPECT_FALSE(testing::all_finite(bad.out.view().slice(0, row, row + 1).slice(1, head, head + 1)));
}

// contract: C5
TEST_P(PrefillConformance, a_row_gives_the_same_bits_however_its_prompt_is_cut) {
  PrefillCase whole{.attrs = attrs(2, widths().front()), .requests = {{200, 200}}};
  if (!on_device()) whole.requests = {{20, 20}};
  whole.seed = test_seed();
  const PrefillInputs in(whole);
  const PrefillOutputs all = run(in);
  const int len = whole.requests[0].kv_len;
  for (const int cut : {1, len / 3, len - 1}) {
    PrefillCase c = whole;
    c.requests = {{cut, cut}, {len - cut, len}};
    PrefillInputs parts(c);
    copy_elements(in.q_nope.view(), parts.q_nope.view());
    copy_elements(in.q_pe.view(), parts.q_pe.view());
    for (Tensor PrefillInputs::*keys : {&PrefillInputs::k_nope, &PrefillInputs::k_pe, &PrefillInputs::v}) {
      const TensorView from = (in.*keys).view(), to = (parts.*keys).view();
      copy_elements(from.slice(0, 0, cut), to.slice(0, 0, cut));
      copy_elements(from, to.slice(0, cut, cut + len));
    }
    expect_same(all, run(parts), std::to_string(cut));
  }
}

// Chunks of a context and the new tokens, each attended alone in f32, merge to what one pass gives.
// contract: C9
TEST_P(PrefillConformance, chunks_of_a_context_merge_to_the_whole) {
  const Widths w = widths().front();
  PrefillCase c{.attrs = attrs(2, w), .out_dtype = DType::kF32, .requests = {{30, 230}, {20, 20}, {5, 95}}};
  c.seed = test_seed();
  const PrefillInputs in(c);
  const PrefillTruth truth = find_truth(in, weight_roundoff(backend(), c));
  constexpr int kChunk = 90;
  PrefillOutputs merged{.out = {}, .lse = {}};
  for (int chunk = -1; chunk < 3; ++chunk) {  // first the new tokens, then their context
    PrefillCase part = c;
    part.attrs.causal = chunk < 0;
    const auto keys_of = [&](const PrefillRequest& r) -> Range {
      const int context = r.kv_len - r.q_len;
      if (chunk < 0) return {context, r.kv_len};
      return {std::min(chunk * kChunk, context), std::min((chunk + 1) * kChunk, context)};
    };
    for (size_t s = 0; s < c.requests.size(); ++s)
      part.requests[s].kv_len = static_cast<int>(keys_of(c.requests[s]).size());
    PrefillInputs keys(part);
    copy_elements(in.q_nope.view(), keys.q_nope.view());
    copy_elements(in.q_pe.view(), keys.q_pe.view());
    int64_t from = 0, to = 0;
    for (const PrefillRequest& r : c.requests) {
      const Range range = keys_of(r);
      for (Tensor PrefillInputs::*t : {&PrefillInputs::k_nope, &PrefillInputs::k_pe, &PrefillInputs::v})
        if (range.size() > 0)
          copy_elements((in.*t).view().slice(0, from + range.begin, from + range.end),
                        (keys.*t).view().slice(0, to, to + range.size()));
      from += r.kv_len;
      to += range.size();
    }
    PrefillOutputs state = run(keys);
    if (chunk < 0)
      merged = std::move(state);
    else
      attention::merge_states({.out_a = merged.out.view(),
                               .lse_a = merged.lse.view(),
                               .out_b = state.out.view(),
                               .lse_b = state.lse.view()},
                              1);
  }
  EXPECT_TRUE(is_right(merged, truth, in));
}

std::string backend_name(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

std::vector<std::string> all_backends() {
  std::vector<std::string> names;
  for (const attention::PrefillBackend* b : attention::prefill_backends()) names.emplace_back(b->name());
  for (const attention::AbsentBackend& absent : attention::absent_backends()) names.emplace_back(absent.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, PrefillConformance, ::testing::ValuesIn(all_backends()), backend_name);

}  // namespace
}  // namespace latent::conformance
