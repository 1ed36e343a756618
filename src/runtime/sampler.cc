// SPDX-License-Identifier: Apache-2.0
#include "runtime/sampler.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <functional>

#include "base/check.h"

namespace latent::runtime {
namespace {

// Below it the runner-up's weight is nothing unless it ties within 1e-3 or so; K1 of the field reports.
constexpr float kGreedyTemperature = 1e-5f;

uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The total order of tokens.
bool is_better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}
// For heaps, whose top is the greatest.
bool is_worse(const Candidate& a, const Candidate& b) { return is_better(b, a); }

float penalise(float logit, const SamplingParams& p, const TokenHistory& history, int32_t id) {
  if (!history.seen(id)) return logit;
  logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
  const int count = history.output_count(id);
  if (count > 0) logit -= p.presence_penalty + p.frequency_penalty * static_cast<float>(count);
  return logit;
}

// The best logit, lowest id on ties, or what is wrong with the row.
Result<Candidate> find_best(std::span<const float> logits) {
  Candidate best{-1, -INFINITY, 1.0};
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    if (!(logit < INFINITY)) return make_error(ErrorCode::kNonFinite, "logit {} is {}", i, logit);
    if (logit > best.logit) best = {static_cast<int32_t>(i), logit, 1.0};
  }
  if (best.id < 0) return make_error(ErrorCode::kNonFinite, "all {} logits are -inf", logits.size());
  return best;
}

}  // namespace

double uniform_draw(uint64_t seed, uint64_t position) {
  return static_cast<double>(mix(mix(seed) ^ position) >> 11) * 0x1p-53;
}

void TokenHistory::add_prompt(int32_t id) {
  int32_t& n = occurrences_[static_cast<size_t>(id)];
  n = std::max(n, 1);
}

void TokenHistory::add_output(int32_t id) {
  add_prompt(id);
  ++occurrences_[static_cast<size_t>(id)];
}

bool needs_history(const SamplingParams& p) {
  return p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
}

int find_bad_logit(std::span<const float> logits) {
  // x - x is 0 for every finite x and NaN for all others, so one sum tells whether a search is needed.
  float sum = 0;
  for (const float x : logits) sum += x - x;
  if (sum == 0) return -1;
  const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return !std::isfinite(x); });
  return static_cast<int>(bad - logits.begin());
}

Sampler::Sampler(int vocab) : vocab_(vocab), adjusted_(static_cast<size_t>(vocab)) {
  candidates_.reserve(static_cast<size_t>(vocab));
}

std::span<const float> Sampler::adjust(std::span<const float> logits, const SamplingParams& params,
                                       const TokenHistory* history) {
  const bool penalties = needs_history(params);
  CHECK(!penalties || history != nullptr, "penalties without a history");
  if (!penalties && params.logit_bias.empty()) return logits;
  std::copy(logits.begin(), logits.end(), adjusted_.begin());
  for (const LogitBias& b : params.logit_bias) adjusted_[static_cast<size_t>(b.id)] += b.bias;
  if (penalties)
    for (int32_t id = 0; id < vocab_; ++id) {
      float& logit = adjusted_[static_cast<size_t>(id)];
      const float original = logit;
      logit = penalise(logit, params, *history, id);
      // A finite logit stays finite under any penalty.
      if (std::isfinite(original)) logit = std::clamp(logit, -FLT_MAX, FLT_MAX);
    }
  return adjusted_;
}

void Sampler::fill_candidates(std::span<const float> logits) {
  candidates_.clear();
  for (int32_t id = 0; id < vocab_; ++id)
    if (const float logit = logits[static_cast<size_t>(id)]; logit > -INFINITY)
      candidates_.push_back({id, logit, 0.0});
}

void Sampler::keep_top_k(int k) {
  if (static_cast<size_t>(k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + k, candidates_.end(), is_better);
    candidates_.resize(static_cast<size_t>(k));
  }
  std::sort(candidates_.begin(), candidates_.end(), is_better);
}

void Sampler::keep_top_p(double p) {
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  // Best first until the mass is there; a heap sorts no more than is kept.
  std::make_heap(candidates_.begin(), candidates_.end(), is_worse);
  auto end = candidates_.end();
  double mass = 0;
  do {
    std::pop_heap(candidates_.begin(), end, is_worse);
    mass += (--end)->weight;
  } while (mass < p * total && end != candidates_.begin());
  candidates_.erase(candidates_.begin(), end);
  std::reverse(candidates_.begin(), candidates_.end());
}

void Sampler::keep_min_p(double p) {
  std::erase_if(candidates_, [p](const Candidate& c) { return c.weight < p; });
}

Result<std::span<const Candidate>> Sampler::candidates(std::span<const float> logits,
                                                       const SamplingParams& params,
                                                       const TokenHistory* history) {
  CHECK(logits.size() == static_cast<size_t>(vocab_), "{} logits for a vocabulary of {}", logits.size(),
        vocab_);
  const std::span<const float> row = adjust(logits, params, history);
  const Result<Candidate> best = find_best(row);
  if (!best.ok()) return best.error();
  if (params.temperature < kGreedyTemperature) {
    candidates_.assign(1, *best);
    return std::span<const Candidate>(candidates_);
  }
  fill_candidates(row);
  if (params.top_k > 0 && params.top_k < vocab_) keep_top_k(params.top_k);
  for (Candidate& c : candidates_)
    c.weight = std::exp((static_cast<double>(c.logit) - best->logit) / params.temperature);
  if (params.top_p < 1) keep_top_p(params.top_p);
  if (params.min_p > 0) keep_min_p(params.min_p);
  return std::span<const Candidate>(candidates_);
}

Result<int32_t> Sampler::sample(std::span<const float> logits, const SamplingParams& params,
                                const TokenHistory* history, uint64_t position) {
  const Result<std::span<const Candidate>> kept = candidates(logits, params, history);
  if (!kept.ok()) return kept.error();
  double total = 0;
  for (const Candidate& c : *kept) total += c.weight;
  const double target = uniform_draw(params.seed, position) * total;
  double sum = 0;
  int32_t last = kept->front().id;
  for (const Candidate& c : *kept) {
    if (c.weight <= 0) continue;  // so small that it was rounded away
    last = c.id;
    sum += c.weight;
    if (sum > target) break;
  }
  return last;
}

LogprobRow Sampler::logprobs(std::span<const float> logits, int32_t chosen, int num_best) {
  const float best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - best);
  const double log_sum = std::log(sum) + best;
  const auto logprob = [&](int32_t id) {
    const double value = static_cast<double>(logits[static_cast<size_t>(id)]) - log_sum;
    return TokenLogprob{id, std::max(static_cast<float>(value), kLogprobFloor)};
  };
  LogprobRow row{.chosen = logprob(chosen), .best = {}};
  if (num_best <= 0) return row;
  fill_candidates(logits);
  keep_top_k(std::min(num_best, vocab_));
  for (const Candidate& c : candidates_) row.best.push_back(logprob(c.id));
  return row;
}

}  // namespace latent::runtime
