// SPDX-License-Identifier: Apache-2.0
// latent bench attention, run as a user runs it.
#include <algorithm>

#include "attention/backend.h"
#include "cli/fixture.h"

namespace latent::cli {
namespace {

class BenchAttention : public TinyModelTest {
 protected:
  static Outcome bench(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"bench", "attention"});
    return run_latent(flags);
  }
};

TEST_F(BenchAttention, reports_every_case_and_backend_in_the_common_envelope) {
  const Outcome run = bench({"--heads", "1,3", "--len", "70", "--backend", "cpu,ref", "--lengths", "varied",
                             "--batch", "3", "--threads", "1", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = parse(run.out);
  for (const char* key : {"schema", "commit", "device", "date", "command", "ceilings", "rows"})
    EXPECT_TRUE(report.contains(key)) << key;
  EXPECT_GT(report["ceilings"]["read_bytes_per_s"], 0);
  ASSERT_EQ(report["rows"].size(), 4u);
  for (const Json& row : report["rows"]) {
    EXPECT_GT(row["us"], 0);
    EXPECT_LE(row["us_least_round"], row["us"]);
    EXPECT_GE(row["us_most_round"], row["us"]);
    // cpu and ref saw the same inputs: they differ by rounding alone.
    EXPECT_LT(row["difference_to_first"], 1e-2) << row;
  }
}

TEST_F(BenchAttention, caches_of_codes_are_read_by_every_backend_alike) {
  for (const char* cache : {"fp8", "fp8-656"}) {
    const Outcome run = bench({"--heads", "2", "--len", "70", "--backend", "cpu,ref", "--threads", "1",
                               "--kv-cache", cache, "--json"});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const Json rows = parse(run.out)["rows"];
    for (const Json& row : rows) EXPECT_LT(row["difference_to_first"], 1e-2) << row;
  }
}

TEST_F(BenchAttention, padded_rows_are_written_by_every_backend_alike) {
  const Outcome run = bench(
      {"--heads", "2", "--len", "70", "--padded", "0,5", "--backend", "cpu,ref", "--threads", "1", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json rows = parse(run.out)["rows"];
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[3]["padded"], 5);
  for (const Json& row : rows) EXPECT_LT(row["difference_to_first"], 1e-2) << row;
  EXPECT_EQ(bench({"--padded", "-1"}).exit_code, 2);
}

TEST_F(BenchAttention, an_interrupt_leaves_the_rows_that_were_measured) {
  const Outcome run =
      run_latent_and_interrupt({"bench", "attention", "--heads", "1", "--len", "64,65,66,67", "--backend",
                                "cpu", "--threads", "1", "--protocol", "burst,warm", "--json"},
                               "debug: heads", {"LATENT_LOG=debug"});
  EXPECT_EQ(run.exit_code, 130) << run.err;
  EXPECT_LT(parse(run.out)["rows"].size(), 8u);
}

TEST_F(BenchAttention, every_protocol_gives_a_row) {
  const Outcome run = bench({"--heads", "1", "--len", "64", "--backend", "cpu", "--threads", "1",
                             "--protocol", "warm,burst", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json rows = parse(run.out)["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["protocol"], "warm");
  EXPECT_EQ(rows[1]["protocol"], "burst");
}

TEST_F(BenchAttention, lists_every_backend_with_the_reason_if_it_cannot_run) {
  const Outcome run = bench({"--list", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json rows = parse(run.out)["rows"];
  const auto find = [&](const std::string& name) {
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const Json& r) { return r["backend"] == name; });
    EXPECT_NE(row, rows.end()) << name;
    return row == rows.end() ? Json::object() : *row;
  };
  for (const char* name : {"cuda_sm90", "cuda_sm80"}) {
    const Json row = find(name);
    EXPECT_TRUE(row["runs"].get<bool>() || row["reason"].get<std::string>().size() > 5) << row;
  }
  for (const attention::Backend* b : attention::backends()) find(b->name());
  EXPECT_EQ(find("cpu")["memory"], "host");
}

TEST_F(BenchAttention, names_what_cannot_be_measured) {
  EXPECT_NE(bench({"--backend", "fast"}).err.find("no attention backend 'fast'"), std::string::npos);
  EXPECT_EQ(bench({"--backend", "fast"}).exit_code, 2);
  EXPECT_EQ(bench({"--len", "0"}).exit_code, 2);
  if (!attention::absent_backends().empty()) {
    EXPECT_NE(bench({"--op", "gather"}).err.find("--op gather needs an NVIDIA GPU"), std::string::npos);
  }
  EXPECT_EQ(bench({"--q-len", "9"}).exit_code, 2);
  EXPECT_EQ(bench({"--q-len", "4", "--len", "3"}).exit_code, 2);
  EXPECT_EQ(bench({"--len", "4096", "--pool-gb", "0.001"}).exit_code, 2);
}

TEST_F(BenchAttention, prompts_are_timed_with_the_work_that_the_mask_leaves) {
  const Outcome run =
      bench({"--prefill", "--backend", "ref", "--heads", "1", "--len", "12", "--context", "0,20", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json report = parse(run.out);
  EXPECT_EQ(report["schema"], "latent.bench.attention-prefill/1");
  ASSERT_EQ(report["rows"].size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const Json& row = report["rows"][i];
    EXPECT_EQ(row["difference_to_first"], 0.0);
    // Half the square of the new tokens, and all of their context; 192 + 128 columns.
    const double work = 2.0 * 320 * (12 * 12 / 2.0 + 12 * (i == 0 ? 0 : 20));
    EXPECT_NEAR(row["flops_per_s"].get<double>() * row["us"].get<double>() * 1e-6, work, 1e-6 * work);
  }
  EXPECT_EQ(bench({"--prefill", "--backend", "ref", "--context", "-1"}).exit_code, 2);
  EXPECT_NE(bench({"--prefill", "--backend", "fast"}).err.find("no attention backend 'fast'"),
            std::string::npos);
}

TEST_F(BenchAttention, the_environment_forces_a_backend) {
  const Outcome run = run_latent({"bench", "attention", "--heads", "1", "--len", "16", "--json"}, "",
                                 {"LATENT_ATTENTION_BACKEND=ref"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(parse(run.out)["rows"][0]["backend"], "ref");
}

}  // namespace
}  // namespace latent::cli
