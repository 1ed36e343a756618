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

TEST_F(CompareCommand, an_interrupt_ends_it_between_two_operators) {
  // A thousand tokens take seconds.
  const std::string model = std::string(LATENT_SOURCE_DIR) + "/models/tiny";
  const std::string ids = write("many.json", ids_text(some_ids(1000)));
  const Outcome run =
      run_latent_and_interrupt({"compare", model, "--token-ids", ids}, "absorbed form", {"LATENT_LOG=debug"});
  EXPECT_EQ(run.exit_code, 130) << run.err;
  EXPECT_TRUE(contains(run.err, "ended after")) << run.err;
  EXPECT_EQ(run.out, "");
}

}  // namespace
}  // namespace latent::cli
