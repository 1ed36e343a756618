// SPDX-License-Identifier: Apache-2.0
// latent bench, run as a user runs it, on a tiny checkpoint.
#include "cli/fixture.h"

namespace latent::cli {
namespace {

using BenchCommand = TinyModelTest;

// The report is whole whatever else the machine did; that its bound was disturbed by that is said after it.
bool reported(const Outcome& run) {
  return run.exit_code == 0 || (run.exit_code == 1 && contains(run.err, "a share above 100 %"));
}

TEST_F(BenchCommand, bench_model_reports_in_the_common_envelope) {
  const Outcome run = run_latent(
      {"bench", "model", model(), "--contexts", "16,32", "--decode-tokens", "4", "--rounds", "1", "--json"});
  ASSERT_TRUE(reported(run)) << run.exit_code << ": " << run.err;
  const Json report = parse(run.out);
  for (const char* key : {"schema", "commit", "device", "date", "command", "ceilings", "rows"})
    EXPECT_TRUE(report.contains(key)) << key;
  ASSERT_EQ(report["rows"].size(), 2u);
  EXPECT_EQ(report["rows"][1]["context"], 32);
  EXPECT_GE(report["ceilings"]["read_forms"], 6);
  EXPECT_GT(report["rows"][0]["decode_tokens_per_s"], 0);
}

TEST_F(BenchCommand, default_contexts_fit_the_model) {
  const Outcome run =
      run_latent({"bench", "model", model(), "--decode-tokens", "4", "--rounds", "1", "--json"});
  ASSERT_TRUE(reported(run)) << run.exit_code << ": " << run.err;
  const Json rows = parse(run.out)["rows"];
  ASSERT_EQ(rows.size(), 1u) << "both defaults are longer than the model's context";
  EXPECT_EQ(rows[0]["context"], kContext - 5);
}

}  // namespace
}  // namespace latent::cli
