// SPDX-License-Identifier: Apache-2.0
// What the conformance suite asks of the prefill kernels on a GPU, on the emulator: few and small problems,
// many schedules.
#include "attention/backends/cuda_emulated/emulated_prefill.h"

#include <gtest/gtest.h>

#include "attention/conformance/prefill_problem.h"
#include "tensor/float_types.h"
#include "testing/compare.h"

namespace latent::testing {
namespace {

using conformance::PrefillCase;
using conformance::PrefillInputs;
using conformance::PrefillLayout;
using conformance::PrefillOutputs;

struct Widths {
  int nope, rope, v;
};

// What one backend serves.
struct Served {
  const char* name;
  std::unique_ptr<attention::PrefillBackend> (*make)(const PrefillEmulation&);
  std::vector<Widths> widths;
};

void PrintTo(const Served& served, std::ostream* to) { *to << served.name; }

const Served kServed[] = {
    {"cuda_sm80",
     make_emulated_sm80_prefill,
     {{128, 64, 128},
      {192, 64, 256},
      {64, 32, 64},
      {40, 24, 72},
      {0, 64, 8},
      {24, 0, 40},
      {0, 8, 16},
      {248, 8, 248}}},
    {"cuda_sm90", make_emulated_sm90_prefill, {{128, 64, 128}, {128, 64, 128}, {192, 64, 256}}},
};

PrefillCase random_case(Random& random, const std::vector<Widths>& widths) {
  PrefillCase c;
  c.seed = random.seed();
  const Widths w = widths[static_cast<size_t>(random.integer(0, static_cast<int64_t>(widths.size()) - 1))];
  c.attrs = {.num_heads = static_cast<int>(random.integer(1, 3)),
             .nope_dim = w.nope,
             .rope_dim = w.rope,
             .v_dim = w.v,
             .softmax_scale = 0.1147214f,
             .causal = random.integer(0, 2) != 0};
  c.dtype = one_of(random, {DType::kBF16, DType::kF16});
  c.out_dtype = one_of(random, {c.dtype, DType::kF32});
  c.logit_scale = one_of(random, {0.0f, 1.0f, 20.0f});
  for (int64_t i = random.integer(0, 3); i > 0; --i) {
    const auto q_len = static_cast<int>(one_of<int64_t>(random, {0, 1, random.integer(1, 150)}));
    c.requests.push_back({.q_len = q_len,
                          .kv_len = static_cast<int>(one_of<int64_t>(
                              random, {0, q_len, q_len + random.integer(0, 150), random.integer(0, 200)}))});
  }
  return c;
}

PrefillLayout random_layout(Random& random) {
  return {.poison = one_of(random, {PoisonPattern::kNan, PoisonPattern::kInf, PoisonPattern::kLarge}),
          .padded_rows = static_cast<int>(random.integer(0, 3)),
          .padded_keys = static_cast<int>(random.integer(0, 3)),
          .padded_requests = static_cast<int>(random.integer(0, 40)),
          .strided = random.integer(0, 1) == 1,
          .shared_rope = random.integer(0, 1) == 1,
          .with_lse = random.integer(0, 3) != 0,
          .launches = static_cast<int>(random.integer(1, 2))};
}

class EmulatedPrefill : public ::testing::TestWithParam<Served> {
 protected:
  static PrefillOutputs run(const PrefillInputs& in, const PrefillEmulation& emulation,
                            const PrefillLayout& layout) {
    return conformance::run(*GetParam().make(emulation), in, layout);
  }
};

// contract: C1 C2 C3 C4 C9
TEST_P(EmulatedPrefill, any_schedule_and_layout_gives_the_same_bits_within_the_bound) {
  for (uint64_t i = 0; i < 8 && !HasFailure(); ++i) {
    Random random(test_seed(i));
    const PrefillCase c = random_case(random, GetParam().widths);
    const PrefillInputs in(c);
    const auto truth = find_truth(in, unit_roundoff(c.dtype));
    const PrefillOutputs first = run(in, {.seed = random.seed()}, random_layout(random));
    EXPECT_TRUE(is_right(first, truth, in));
    const PrefillEmulation other{.ctas = static_cast<int>(random.integer(1, 5)),
                                 .ctas_at_once = static_cast<int>(random.integer(0, 2)),
                                 .section_keys = static_cast<int>(random.integer(1, 400)),
                                 .lazy = random.integer(0, 1) == 1,
                                 .seed = random.seed() + 1};
    const PrefillOutputs again = run(in, other, random_layout(random));
    EXPECT_TRUE(is_right(again, truth, in));
    EXPECT_TRUE(
        same_bits(first.out.view().slice(0, 0, c.num_rows()), again.out.view().slice(0, 0, c.num_rows())))
        << to_string(c);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedPrefill, ::testing::ValuesIn(kServed),
                         [](const auto& served) { return std::string(served.param.name); });

}  // namespace
}  // namespace latent::testing
