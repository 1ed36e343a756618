// SPDX-License-Identifier: Apache-2.0
// latent score, run as a user runs it, on a tiny checkpoint.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "cli/fixture.h"

namespace latent::cli {
namespace {

using ScoreCommand = TinyModelTest;

// contract: C3
TEST_F(ScoreCommand, logits_are_bit_identical_under_every_poison_pattern) {
  const std::string ids = write("p.json", ids_text(some_ids(100)));
  std::string first;
  for (const char* pattern : {"none", "nan", "inf", "large"}) {
    const std::string file = path("logits.safetensors");
    const Outcome run = run_latent({"score", model(), "--token-ids", ids, "--logits", file, "--poison",
                                    pattern, "--prefill-chunk", "33"});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const std::string bytes = read_file(file);
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes.size(), first.size());
    EXPECT_TRUE(bytes == first) << pattern;
  }
}

// contract: C5
TEST_F(ScoreCommand, logits_are_bit_identical_for_every_chunking_when_deterministic) {
  const std::string ids = write("c.json", ids_text(some_ids(100)));
  std::string first;
  for (const char* chunk : {"1", "16", "64", "100"}) {
    const std::string file = path("logits.safetensors");
    const Outcome run = run_latent({"score", model(), "--token-ids", ids, "--logits", file, "--deterministic",
                                    "--prefill-chunk", chunk});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const std::string bytes = read_file(file);
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << chunk;
  }
}

TEST_F(ScoreCommand, score_writes_a_tensor_of_logits_and_a_json_of_probabilities) {
  const std::string ids = write("s.json", ids_text(some_ids(9)));
  const Outcome run = run_latent(
      {"score", model(), "--token-ids", ids, "--top", "2", "--json", "-", "--logits", path("l.safetensors")});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json score = parse(run.out);
  EXPECT_EQ(score["token_ids"], Json(some_ids(9)));
  ASSERT_EQ(score["logprobs"].size(), 9u);
  ASSERT_EQ(score["top"].size(), 9u);
  EXPECT_TRUE(score["logprobs"][0].is_null());

  const std::string file = read_file(path("l.safetensors"));
  uint64_t header = 0;
  std::memcpy(&header, file.data(), 8);
  const Json tensor = parse(file.substr(8, header))["logits"];
  EXPECT_EQ(tensor["dtype"], "F32");
  EXPECT_EQ(tensor["shape"], (Json{9, kVocab}));
  const char* data = file.data() + 8 + header + tensor["data_offsets"][0].get<size_t>();
  double total = 0;
  for (size_t i = 0; i + 1 < 9; ++i) {
    std::vector<float> row(kVocab);
    std::memcpy(row.data(), data + i * kVocab * sizeof(float), kVocab * sizeof(float));
    double sum = 0;
    for (const float x : row) sum += std::exp(x);
    const double logprob = row[static_cast<size_t>(some_ids(9)[i + 1])] - std::log(sum);
    EXPECT_NEAR(score["logprobs"][i + 1].get<double>(), logprob, 1e-5);
    EXPECT_EQ(score["top"][i][0]["id"], std::max_element(row.begin(), row.end()) - row.begin());
    total += logprob;
  }
  EXPECT_NEAR(score["total_logprob"].get<double>(), total, 1e-4);
  const Outcome table = run_latent({"score", model(), "--token-ids", ids});
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_TRUE(contains(table.out, "logprob"));
}

TEST_F(ScoreCommand, the_switch_of_the_environment_means_stdout) {
  const Arguments score{"score", model(), "--token-ids", write("s.json", "[1, 2, 3]")};
  const Outcome json = run_latent(score, "", {"LATENT_JSON=1"}),
                table = run_latent(score, "", {"LATENT_JSON=0"});
  ASSERT_EQ(json.exit_code, 0) << json.err;
  EXPECT_EQ(parse(json.out)["logprobs"].size(), 3u);
  EXPECT_TRUE(contains(table.out, "position")) << table.err;
}

}  // namespace
}  // namespace latent::cli
