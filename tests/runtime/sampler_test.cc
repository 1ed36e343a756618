// SPDX-License-Identifier: Apache-2.0
#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <climits>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

namespace latent::runtime {
namespace {

using Row = std::vector<float>;

Row random_row(std::mt19937& rng, int vocab) {
  std::normal_distribution<float> normal(0, 4);
  Row row(static_cast<size_t>(vocab));
  // Every fourth row is coarse, so that ties abound; a few logits are -inf.
  const bool coarse = rng() % 4 == 0;
  for (float& x : row) {
    x = coarse ? std::round(normal(rng) / 4) : normal(rng);
    if (rng() % 50 == 0) x = -INFINITY;
  }
  row[rng() % row.size()] = 1;
  return row;
}

struct Token {
  int32_t id;
  double probability;
};

// The definition by sorting, in long double: softmax of logit / temperature, top-k, renormalise, top-p,
// min-p.
std::vector<Token> sorted_reference(const Row& row, const SamplingParams& p, bool* near_boundary) {
  std::vector<int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
  });
  if (p.top_k > 0 && p.top_k < static_cast<int>(row.size())) order.resize(static_cast<size_t>(p.top_k));
  const long double best = row[static_cast<size_t>(order[0])];
  std::vector<long double> weights;
  for (const int32_t id : order)
    weights.push_back(
        std::exp((static_cast<long double>(row[static_cast<size_t>(id)]) - best) / p.temperature));
  const long double total = std::accumulate(weights.begin(), weights.end(), 0.0L);
  size_t keep = 0;
  for (long double mass = 0; keep < order.size() && (keep == 0 || mass < p.top_p * total); ++keep) {
    mass += weights[keep];
    *near_boundary |= std::fabs(mass / total - p.top_p) < 1e-12L;
  }
  if (p.top_p == 1) {
    keep = order.size();
    *near_boundary = false;
  }
  while (keep > 1 && weights[keep - 1] < p.min_p) --keep;
  const long double kept = std::accumulate(weights.begin(), weights.begin() + static_cast<long>(keep), 0.0L);
  std::vector<Token> tokens;
  for (size_t i = 0; i < keep; ++i)
    if (row[static_cast<size_t>(order[i])] > -INFINITY)
      tokens.push_back({order[i], static_cast<double>(weights[i] / kept)});
  return tokens;
}

TEST(Sampler, keeps_the_tokens_that_sorting_keeps_on_1000_random_rows) {
  int compared = 0;
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    const int vocab = std::vector<int>{1, 2, 7, 127, 500}[rng() % 5];
    const Row row = random_row(rng, vocab);
    SamplingParams p;
    p.temperature = std::vector<float>{0.3f, 1.0f, 2.5f, 1e6f}[rng() % 4];
    p.top_k = std::vector<int>{-1, 0, 1, 5, vocab, vocab + 1, INT_MAX}[rng() % 7];
    p.top_p = std::vector<float>{0.0f, 1e-9f, 0.1f, 0.9f, 1.0f}[rng() % 5];
    p.min_p = std::vector<float>{0.0f, 0.05f, 1.0f}[rng() % 3];
    Sampler sampler(vocab);
    const Result<std::span<const Candidate>> kept = sampler.candidates(row, p, nullptr);
    ASSERT_TRUE(kept.ok());
    bool near_boundary = false;
    std::vector<Token> expected = sorted_reference(row, p, &near_boundary);
    if (near_boundary) continue;  // rounding may decide; such rows are counted
    ++compared;
    ASSERT_EQ(kept->size(), expected.size());
    double total = 0;
    for (const Candidate& c : *kept) total += c.weight;
    const auto by_id = [](const auto& a, const auto& b) { return a.id < b.id; };
    std::vector<Candidate> actual(kept->begin(), kept->end());
    const bool limited = (p.top_k > 0 && p.top_k < vocab) || p.top_p < 1;
    if (!limited) std::sort(expected.begin(), expected.end(), by_id);
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_EQ(actual[i].id, expected[i].id) << i;
      ASSERT_NEAR(actual[i].weight / total, expected[i].probability, 1e-12);
    }
  }
  EXPECT_GT(compared, 900);
}

// K5: the token that crosses the boundary belongs to the set.
TEST(Sampler, top_p_keeps_the_smallest_set_that_has_the_mass) {
  const Row row = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  Sampler sampler(4);
  const std::vector<std::pair<float, size_t>> cases = {
      {0.49f, 1}, {0.51f, 2}, {0.79f, 2}, {0.81f, 3}, {0.96f, 4}};
  for (const auto& [p, size] : cases) {
    SamplingParams params;
    params.top_p = p;
    EXPECT_EQ(sampler.candidates(row, params, nullptr)->size(), size) << p;
  }
}

// contract: C15
// K1: whatever the edge lets through gives a valid id, and one that may be drawn.
TEST(Sampler, every_edge_value_gives_a_valid_token) {
  const int vocab = 33;
  std::mt19937 rng(7);
  std::vector<Row> rows = {random_row(rng, vocab), Row(vocab, 0.0f), Row(vocab, -INFINITY),
                           Row(vocab, FLT_MAX), Row(vocab, -FLT_MAX)};
  rows[2][20] = -1e30f;
  rows[4][3] = FLT_MAX;
  Sampler sampler(vocab);
  SamplingParams p;
  for (const Row& row : rows)
    for (const float temperature : {0.0f, 1e-30f, 1e-5f, 1e-4f, 1.0f, 1e6f, FLT_MAX})
      for (const float top_p : {0.0f, 1e-9f, 1e-4f, 1.0f})
        for (const int top_k : {-1, 0, 1, vocab, vocab + 1, INT_MAX})
          for (const float min_p : {0.0f, 1.0f})
            for (uint64_t position = 0; position < 3; ++position) {
              p.temperature = temperature;
              p.top_p = top_p;
              p.top_k = top_k;
              p.min_p = min_p;
              const Result<int32_t> id = sampler.sample(row, p, nullptr, position);
              ASSERT_TRUE(id.ok());
              ASSERT_TRUE(*id >= 0 && *id < vocab);
              ASSERT_GT(row[static_cast<size_t>(*id)], -INFINITY);
              if (temperature < 1e-5f || top_k == 1 || top_p == 0) {
                const auto best = std::max_element(row.begin(), row.end());
                ASSERT_EQ(*id, best - row.begin()) << "ties go to the lowest id";
              }
            }
}

// contract: C6 C12
TEST(Sampler, a_row_that_is_no_distribution_is_an_error_that_names_the_logit) {
  Sampler sampler(5);
  for (const float temperature : {0.0f, 1.0f})
    for (const float bad : {NAN, -NAN, INFINITY}) {
      SamplingParams p;
      p.temperature = temperature;
      const Result<int32_t> id = sampler.sample(Row{1, 2, -INFINITY, bad, 3}, p, nullptr, 0);
      ASSERT_FALSE(id.ok());
      EXPECT_EQ(id.error().code, ErrorCode::kNonFinite);
      EXPECT_NE(id.error().message.find("logit 3"), std::string::npos) << id.error().message;
    }
  EXPECT_FALSE(sampler.sample(Row(5, -INFINITY), {}, nullptr, 0).ok());
}

TEST(Sampler, draws_follow_the_distribution) {
  const std::vector<double> probabilities = {0.5, 0.25, 0.125, 0.125};
  Row row;
  for (const double p : probabilities) row.push_back(static_cast<float>(std::log(p)));
  Sampler sampler(4);
  const int num_draws = 40000;
  std::vector<int> counts(4, 0);
  for (uint64_t position = 0; position < num_draws; ++position)
    ++counts[*sampler.sample(row, {}, nullptr, position)];
  for (size_t i = 0; i < 4; ++i) {
    const double p = probabilities[i], deviation = std::sqrt(num_draws * p * (1 - p));
    EXPECT_NEAR(counts[i], num_draws * p, 5 * deviation) << i;  // seeds are fixed: no chance of a rare miss
  }
}

TEST(Sampler, a_draw_depends_on_seed_and_position_only) {
  std::mt19937 rng(3);
  const Row row = random_row(rng, 100), other = random_row(rng, 100);
  SamplingParams p, q;
  p.seed = 1;
  q.seed = 2;
  Sampler solo(100), shared(100);
  int differ_by_seed = 0, differ_by_position = 0;
  for (uint64_t position = 0; position < 200; ++position) {
    const int32_t id = *solo.sample(row, p, nullptr, position);
    (void)*shared.sample(other, q, nullptr, position * 17);  // somebody else's draw in between
    EXPECT_EQ(*shared.sample(row, p, nullptr, position), id);
    differ_by_seed += *solo.sample(row, q, nullptr, position) != id;
    differ_by_position += *solo.sample(row, p, nullptr, position + 1000) != id;
  }
  EXPECT_GT(differ_by_seed, 50);
  EXPECT_GT(differ_by_position, 50);
}

TEST(Sampler, uniform_draws_fill_the_unit_interval_evenly) {
  const int num_bins = 64, num_draws = 64000;
  std::vector<int> bins(num_bins, 0);
  for (uint64_t i = 0; i < num_draws; ++i) {
    const double u = uniform_draw(i / 1000, i % 1000);  // near seeds and near positions
    ASSERT_TRUE(u >= 0 && u < 1);
    ++bins[static_cast<size_t>(u * num_bins)];
  }
  double chi2 = 0;
  for (const int n : bins) chi2 += (n - 1000.0) * (n - 1000.0) / 1000;
  EXPECT_LT(chi2, 63 + 5 * std::sqrt(2 * 63.0));  // mean and deviation of chi2 with 63 degrees of freedom
}

TEST(Sampler, penalties_and_bias_are_what_their_formulas_say) {
  const Row row = {2, -2, 1, 3, 0.5f};
  TokenHistory history(5);
  history.add_prompt(0);
  history.add_prompt(1);
  history.add_output(1);
  history.add_output(3);
  history.add_output(3);
  SamplingParams p;
  p.repetition_penalty = 2;
  p.presence_penalty = 0.25f;
  p.frequency_penalty = 0.5f;
  p.logit_bias = {{2, 10}, {4, -1}};
  Sampler sampler(5);
  const Result<std::span<const Candidate>> kept = sampler.candidates(row, p, &history);
  ASSERT_TRUE(kept.ok());
  const Row expected = {2 / 2.0f, -2 * 2.0f - 0.25f - 0.5f, 1 + 10, 3 / 2.0f - 0.25f - 2 * 0.5f, 0.5f - 1};
  ASSERT_EQ(kept->size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ((*kept)[i].logit, expected[i]) << i;
}

TEST(Sampler, penalties_keep_finite_logits_finite) {
  TokenHistory history(3);
  for (int32_t id = 0; id < 3; ++id) history.add_output(id);
  SamplingParams p;
  p.repetition_penalty = 100;
  Sampler sampler(3);
  EXPECT_EQ(*sampler.sample(Row{-FLT_MAX, -FLT_MAX, -FLT_MAX}, p, &history, 0) >= 0, true);
  p.repetition_penalty = 0.01f;
  EXPECT_EQ(*sampler.sample(Row{FLT_MAX, 1, FLT_MAX}, p, &history, 0) != 1, true);
}

TEST(Sampler, a_history_counts_prompt_and_output_apart) {
  TokenHistory history(4);
  history.add_prompt(1);
  history.add_prompt(1);
  history.add_output(2);
  history.add_output(2);
  history.add_output(1);
  EXPECT_TRUE(history.seen(1));
  EXPECT_EQ(history.output_count(1), 1);
  EXPECT_EQ(history.output_count(2), 2);
  EXPECT_FALSE(history.seen(0));
  EXPECT_EQ(history.output_count(0), 0);
}

TEST(Sampler, logprobs_are_of_the_unchanged_row_and_always_numbers) {
  const Row row = {1, 3, -INFINITY, 3, 2};
  Sampler sampler(5);
  const LogprobRow probs = sampler.logprobs(row, 2, 3);
  EXPECT_EQ(probs.chosen.id, 2);
  EXPECT_EQ(probs.chosen.logprob, kLogprobFloor);
  ASSERT_EQ(probs.best.size(), 3u);
  EXPECT_EQ(probs.best[0].id, 1);
  EXPECT_EQ(probs.best[1].id, 3);
  EXPECT_EQ(probs.best[2].id, 4);
  const double sum = std::exp(1) + 2 * std::exp(3) + std::exp(2);
  EXPECT_NEAR(probs.best[0].logprob, 3 - std::log(sum), 1e-6);
  EXPECT_EQ(sampler.logprobs(row, 0, 0).best.size(), 0u);
  EXPECT_EQ(sampler.logprobs(row, 0, 9).best.size(), 4u) << "what has no probability is not among the best";
}

TEST(Sampler, the_first_bad_logit_is_found_wherever_it_is) {
  for (const int vocab : {1, 7, 129, 1000})
    for (const float bad : {NAN, INFINITY, -INFINITY})
      for (const int at : {0, vocab / 2, vocab - 1}) {
        Row row(static_cast<size_t>(vocab), FLT_MAX);
        EXPECT_EQ(find_bad_logit(row), -1);
        row[static_cast<size_t>(at)] = bad;
        EXPECT_EQ(find_bad_logit(row), at);
      }
}

}  // namespace
}  // namespace latent::runtime
