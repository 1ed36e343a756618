// SPDX-License-Identifier: Apache-2.0
// latent compare, run as a user runs it, on a tiny checkpoint.
#include "cli/fixture.h"

namespace latent::cli {
namespace {

using CompareCommand = TinyModelTest;

TEST_F(CompareCommand, compare_finds_both_forms_within_rounding_of_the_reference) {
  const Outcome run = run_latent({"compare", model(), "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json comparison = parse(run.out);
  ASSERT_EQ(comparison["values"].size(), 3u * 3 + 1)
      << "attention, mlp and out of each layer, and the logits";
  for (const Json& row : comparison["values"])
    for (const char* form : {"absorbed", "multi_head"})
      EXPECT_LT(row[form]["relative"].get<double>(), 1e-4) << row["value"] << form;
  EXPECT_EQ(comparison["best_token_agrees"]["absorbed"], 64);
  EXPECT_TRUE(contains(run_latent({"compare", model()}).out, "layers.2.out"));
}

}  // namespace
}  // namespace latent::cli
