// SPDX-License-Identifier: Apache-2.0
// What the conformance suite asks of the decode kernels on a GPU, on the emulator: few and small problems,
// many schedules.
#include "attention/backends/cuda_emulated/emulated_sm90.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "attention/conformance/oracle.h"
#include "attention/conformance/random_cases.h"
#include "testing/compare.h"
#include "testing/random.h"
#include "testing/sanitizer.h"

namespace latent::testing {
namespace {

using conformance::Case;
using conformance::Inputs;
using conformance::Layout;
using conformance::Outputs;
using conformance::random_layout;

Case random_case(Random& random, int rows) {
  Case c;
  c.seed = random.seed();
  const int rank = one_of(random, {256, 256, 512});
  c.attrs = {.form = ops::AttentionForm::kAbsorbed,
             .num_heads = rows == 64 ? one_of(random, {16, 40, 64, 128}) : one_of(random, {1, 3, 16, 20}),
             .kv_rank = rank,
             .rope_dim = rank == 512 ? 64 : one_of(random, {0, 32}),
             .nope_dim = 2,
             .v_dim = 1,
             .page_tokens = one_of(random, {16, 32, 64, 128}),
             .softmax_scale = 0.1f};
  c.logit_scale = one_of(random, {1.0f, 5.0f, 100.0f, 1e4f});
  c.q_values = one_of(random, {Values::kNormal, Values::kTies, Values::kZeros, Values::kOutliers});
  c.cache_values = one_of(random, {Values::kNormal, Values::kUniform, Values::kTies});
  for (int64_t i = random.integer(1, 4); i > 0; --i)
    c.requests.push_back({.q_len = static_cast<int>(random.integer(0, 3)),
                          .kv_len = static_cast<int>(
                              one_of<int64_t>(random, {0, 1, 31, 64, 65, 130, random.integer(1, 700)}))});
  if (random.integer(0, 2) == 0)  // whole requests a part
    for (auto& request : c.requests) request.kv_len = c.requests[0].kv_len;
  return c;
}

void expect_same(const Outputs& a, const Outputs& b, const std::string& what) {
  const int64_t rows = std::min(a.out.shape()[0], b.out.shape()[0]);
  EXPECT_TRUE(same_bits(a.out.view().slice(0, 0, rows), b.out.view().slice(0, 0, rows))) << what;
}

int num_cases() {
  const char* count = std::getenv("LATENT_TEST_CASES");
  return count == nullptr ? (kSanitized ? 1 : 4) : std::atoi(count);
}

struct Kernel {
  const char* name;
  int rows;
  bool portable;
};

class EmulatedDecode : public ::testing::TestWithParam<Kernel> {
 protected:
  void SetUp() override {
    if (kThreadSanitized) GTEST_SKIP() << "ThreadSanitizer does not know the emulator's threads";
  }
  static Emulation emulation(Random& random, int most_parts) {
    return {.rows = GetParam().rows,
            .parts = static_cast<int>(random.integer(1, most_parts)),
            .seed = random.seed(),
            .portable = GetParam().portable,
            .stages = static_cast<int>(random.integer(2, 4))};
  }
};

// contract: C1 C2 C3 C4
TEST_P(EmulatedDecode, is_right_under_every_schedule_and_gives_the_same_bits) {
  for (int i = 0; i < num_cases(); ++i) {
    Random random(test_seed(static_cast<uint64_t>(i)));
    const Case c = random_case(random, GetParam().rows);
    const Inputs in(c);
    Emulation e = emulation(random, 7);
    SCOPED_TRACE(to_string(c) + " parts " + std::to_string(e.parts));
    const Outputs first = conformance::run(*make_emulated_sm90(e), in, random_layout(random));
    const auto backend = make_emulated_sm90(e);
    EXPECT_TRUE(is_right(first, find_truth(in, weight_roundoff(*backend, c)), in));
    e.lazy = false;
    e.seed = random.seed();
    expect_same(first, conformance::run(*make_emulated_sm90(e), in, random_layout(random)), to_string(c));
    e.ctas_at_once = 1;  // nobody is there to be waited for
    e.lazy = true;
    expect_same(first, conformance::run(*make_emulated_sm90(e), in, random_layout(random)), to_string(c));
    if (HasFailure()) return;
  }
}

// contract: C2 C3
TEST_P(EmulatedDecode, reads_caches_of_codes) {
  if (GetParam().rows == 64 && !GetParam().portable) GTEST_SKIP() << "the wide kernel has no form for codes";
  for (int i = 0; i < std::max(1, num_cases() / 4); ++i)
    for (const DType cache : {DType::kF8E4M3, DType::kU8}) {
      Random random(test_seed(100 + static_cast<uint64_t>(i)));
      Case c = random_case(random, GetParam().rows);
      c.attrs.kv_rank = 512;
      c.attrs.rope_dim = 64;
      c.cache_dtype = cache;
      c.cache_scale = one_of(random, {0.0109f, 0.25f, 3.7f});
      const Inputs in(c);
      Emulation e = emulation(random, 4);
      SCOPED_TRACE(to_string(c) + " parts " + std::to_string(e.parts));
      const Outputs first = conformance::run(*make_emulated_sm90(e), in, random_layout(random));
      EXPECT_TRUE(is_right(first, find_truth(in, weight_roundoff(*make_emulated_sm90(e), c)), in));
      e.lazy = false;
      expect_same(first, conformance::run(*make_emulated_sm90(e), in, random_layout(random)), to_string(c));
      if (HasFailure()) return;
    }
}

// With few keys it shows by which sum of the weights outputs are divided.
TEST_P(EmulatedDecode, divides_by_the_sum_of_the_rounded_weights) {
  Case c{.attrs = {.form = ops::AttentionForm::kAbsorbed,
                   .num_heads = 16,
                   .kv_rank = 256,
                   .rope_dim = 32,
                   .nope_dim = 2,
                   .v_dim = 1,
                   .page_tokens = 64,
                   .softmax_scale = 0.1f}};
  for (int i = 0; i < 24; ++i) c.requests.push_back({.q_len = 1, .kv_len = 2 + i % 3});
  c.logit_scale = 2;
  c.seed = test_seed(1);
  const Inputs in(c);
  const auto backend =
      make_emulated_sm90({.rows = GetParam().rows, .parts = 2, .portable = GetParam().portable});
  EXPECT_TRUE(is_right(conformance::run(*backend, in, {}), find_truth(in, weight_roundoff(*backend, c)), in));
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedDecode,
                         ::testing::Values(Kernel{"sm90_16", 16, false}, Kernel{"sm90_32", 32, false},
                                           Kernel{"sm90_64", 64, false}, Kernel{"sm80_16", 16, true},
                                           Kernel{"sm80_32", 32, true}, Kernel{"sm80_64", 64, true}),
                         [](const auto& kernel) { return kernel.param.name; });

}  // namespace
}  // namespace latent::testing
