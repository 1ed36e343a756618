// SPDX-License-Identifier: Apache-2.0
// What a caller asks of the engine, and what it gets back. Plain data; the edge (validate_request) refuses
// what the engine could not serve, so that nothing later has to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace latent::runtime {

// The largest values the edge lets through.
inline constexpr int kMaxLogprobs = 20;
inline constexpr int kMaxStopStrings = 16;
inline constexpr int kMaxStopStringBytes = 1024;

struct LogitBias {
  int32_t id = 0;
  float bias = 0;  // added to the logit; [-100, 100]
};

// How the next token is drawn from a row of logits, in this order: bias, repetition penalty, presence and
// frequency penalty, temperature, top-k, top-p (of the mass that top-k left), min-p. Defaults draw from the
// model's own distribution.
struct SamplingParams {
  float temperature = 1.0f;  // below 1e-5: the best logit, lowest id on ties
  int top_k = 0;             // the k best; -1, 0 or at least the vocabulary: all
  float top_p = 1.0f;        // the smallest set whose mass is at least p; 0 leaves one token
  float min_p = 0.0f;        // no token less probable than min_p times the best
  float repetition_penalty =
      1.0f;                       // of tokens in prompt or output: positive logits divided, others multiplied
  float presence_penalty = 0.0f;  // taken once from tokens of the output
  float frequency_penalty = 0.0f;  // taken once per occurrence in the output
  std::vector<LogitBias> logit_bias;
  uint64_t seed = 0;      // a draw depends on the seed and its position only
  int num_logprobs = -1;  // -1: none; 0: of the chosen token; n: of the n best too
};

struct Request {
  std::vector<int32_t> prompt;    // token ids, BOS included where the model wants one
  std::optional<int> max_tokens;  // absent: up to the context limit
  SamplingParams sampling;
  std::vector<std::string> stop_strings;  // the text ends before the first that appears
  std::vector<int32_t> stop_ids;          // beside the model's end-of-sequence ids
  bool ignore_eos = false;                // the model's own ids do not end it; stop_ids still do
};

using RequestId = int64_t;

enum class RequestState { kWaiting, kPrefill, kDecode, kFinished };

enum class FinishReason {
  kNone,       // still going
  kStop,       // end-of-sequence id, stop id or stop string
  kLength,     // max_tokens or the context limit
  kCancelled,  // by the caller
  kError,      // see RequestOutput::error
};
const char* to_string(FinishReason reason);  // "stop"; "" for kNone

// Natural logarithms of the model's own distribution, before any of SamplingParams is applied. A probability
// of zero is kLogprobFloor, so that it can be written as a number anywhere.
inline constexpr float kLogprobFloor = -9999.0f;
struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
};
struct LogprobRow {
  TokenLogprob chosen;
  std::vector<TokenLogprob> best;  // num_logprobs entries, best first
};

// Where a request's time went. Loading and waiting are not in it.
struct RequestStats {
  int prompt_tokens = 0;
  int generated_tokens = 0;
  double prefill_seconds = 0;  // until the first token
  double decode_seconds = 0;   // the others
};

// What has happened since the last poll. The concatenation of all texts is the text of the answer.
struct RequestOutput {
  std::vector<int32_t> token_ids;
  std::string text;                  // empty without a tokenizer; whole characters
  std::vector<LogprobRow> logprobs;  // one a token, if asked for
  RequestState state = RequestState::kWaiting;
  FinishReason finish = FinishReason::kNone;
  std::optional<Error> error;  // set when finish is kError
  RequestStats stats;          // totals so far
};

// What the edge holds a request against.
struct RequestLimits {
  int vocab = 0;
  int context_tokens = 0;  // prompt and output together
};

// The first thing wrong with the request, with the value and its bound. After it the request cannot index
// outside anything. CHECKs nothing, allocates nothing.
Status validate_request(const Request& request, const RequestLimits& limits);

// Every id is in [0, vocab); the error names the first that is not, its place and the bound.
Status check_token_ids(const std::vector<int32_t>& ids, int vocab, const char* what);

}  // namespace latent::runtime
