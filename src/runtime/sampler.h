// SPDX-License-Identifier: Apache-2.0
// Sampler: one row of logits to one token id. Every ordering is total (logit descending, id ascending) and
// every draw comes from (seed, position) alone, so a request draws the same tokens whoever else is served.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "runtime/request.h"

namespace latent::runtime {

// A number in [0, 1) that is a pure function of its arguments (a counter-based generator: two rounds of
// splitmix64's finaliser).
double uniform_draw(uint64_t seed, uint64_t position);

// Which tokens a request has seen, for the penalties. Holds one integer a vocabulary entry.
class TokenHistory {
 public:
  explicit TokenHistory(int vocab) : occurrences_(static_cast<size_t>(vocab), 0) {}
  void add_prompt(int32_t id);
  void add_output(int32_t id);

  bool seen(int32_t id) const { return occurrences_[static_cast<size_t>(id)] > 0; }
  int output_count(int32_t id) const { return seen(id) ? occurrences_[static_cast<size_t>(id)] - 1 : 0; }

 private:
  std::vector<int32_t> occurrences_;  // 0: unseen; 1 + n: n times in the output
};

// Whether the parameters look at the history at all.
bool needs_history(const SamplingParams& params);

// A token that may be drawn.
struct Candidate {
  int32_t id;
  float logit;    // after bias, penalties
  double weight;  // proportional to its probability; the best token's is 1
};

// Owns the scratch of one row; allocates nothing after construction. One thread at a time.
class Sampler {
 public:
  explicit Sampler(int vocab);

  // The next token. `logits` [vocab]; a logit of -inf is a token that is never drawn. `history` may be null
  // if !needs_history(params). kNonFinite names the first logit that is NaN or +inf, or says that all are
  // -inf.
  Result<int32_t> sample(std::span<const float> logits, const SamplingParams& params,
                         const TokenHistory* history, uint64_t position);

  // The tokens that sample() draws from; valid until the next call. Best first if top-k or top-p limits them,
  // else by id. Greedy parameters leave one.
  Result<std::span<const Candidate>> candidates(std::span<const float> logits, const SamplingParams& params,
                                                const TokenHistory* history);

  // Log-probabilities of the row as the model gave it (finite, but for -inf).
  LogprobRow logprobs(std::span<const float> logits, int32_t chosen, int num_best);

 private:
  std::span<const float> adjust(std::span<const float> logits, const SamplingParams& params,
                                const TokenHistory* history);
  void fill_candidates(std::span<const float> logits);
  void keep_top_k(int k);
  void keep_top_p(double p);
  void keep_min_p(double p);

  int vocab_;
  std::vector<float> adjusted_;        // [vocab]
  std::vector<Candidate> candidates_;  // at most vocab
};

// Index of the first NaN or infinite logit, or -1.
int find_bad_logit(std::span<const float> logits);

}  // namespace latent::runtime
