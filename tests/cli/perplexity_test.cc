// SPDX-License-Identifier: Apache-2.0
// latent perplexity, run as a user runs it, on a tiny checkpoint.
#include <cmath>

#include "cli/fixture.h"

namespace latent::cli {
namespace {

using PerplexityCommand = TinyModelTest;

TEST_F(PerplexityCommand, perplexity_is_the_sum_over_its_windows) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>('a' + i * 7 % 26);
  const std::string file = write("text.txt", text);
  const Outcome run = run_latent({"perplexity", text_model(), "--text", file, "--window", "41", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json measured = parse(run.out);
  // BOS (id 100) and 40 characters a window; a character is its place in the alphabet of printable ones.
  double nats = 0;
  for (size_t begin = 0; begin < text.size(); begin += 40) {
    std::vector<int32_t> ids{100};
    for (const char c : text.substr(begin, 40)) ids.push_back(c - ' ');
    const Outcome score =
        run_latent({"score", text_model(), "--token-ids", write("w.json", ids_text(ids)), "--json", "-"});
    nats -= parse(score.out)["total_logprob"].get<double>();
  }
  EXPECT_EQ(measured["tokens"], 100);
  EXPECT_EQ(measured["bytes"], 100);
  EXPECT_NEAR(measured["perplexity"].get<double>(), std::exp(nats / 100), 1e-4 * std::exp(nats / 100));
  EXPECT_NEAR(measured["bits_per_byte"].get<double>(), nats / std::log(2.0) / 100, 1e-4);
  EXPECT_TRUE(contains(run_latent({"perplexity", text_model(), "--text", file}).out, "bits per byte"));
}

}  // namespace
}  // namespace latent::cli
