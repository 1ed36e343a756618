// SPDX-License-Identifier: Apache-2.0
#include "runtime/request.h"

#include <cmath>

namespace latent::runtime {
namespace {

constexpr ErrorCode kBad = ErrorCode::kInvalidArgument;

// NaN is in no range.
Status check_range(const char* name, float value, float low, float high) {
  if (value >= low && value <= high) return {};
  return make_error(kBad, "{} is {}; it must be between {} and {}", name, value, low, high);
}

Status check_lengths(const Request& request, const RequestLimits& limits) {
  const size_t prompt = request.prompt.size();
  const size_t context = static_cast<size_t>(limits.context_tokens);
  if (prompt == 0) return make_error(kBad, "the prompt is empty; it needs at least one token");
  if (prompt >= context)
    return make_error(
        kBad,
        "the prompt has {} tokens; the context limit is {} for prompt and output together, so a "
        "prompt may have at most {}",
        prompt, context, context - 1);
  if (!request.max_tokens) return {};
  if (*request.max_tokens < 1)
    return make_error(kBad,
                      "max_tokens is {}; it must be at least 1 (leave it out to go on to the context limit)",
                      *request.max_tokens);
  const size_t wanted = static_cast<size_t>(*request.max_tokens);
  if (wanted > context - prompt)
    return make_error(kBad, "{} prompt tokens and max_tokens {} need {} positions; the context limit is {}",
                      prompt, wanted, prompt + wanted, context);
  return {};
}

Status check_sampling(const SamplingParams& s, int vocab) {
  if (!(std::isfinite(s.temperature) && s.temperature >= 0))
    return make_error(kBad, "temperature is {}; it must be 0 (greedy) or a positive number", s.temperature);
  if (s.top_k < -1)
    return make_error(kBad, "top_k is {}; it must be a positive count, or 0 or -1 for no limit", s.top_k);
  if (s.num_logprobs < -1 || s.num_logprobs > kMaxLogprobs)
    return make_error(kBad, "{} logprobs asked for; at most {} can be had", s.num_logprobs, kMaxLogprobs);
  struct Bound {
    const char* name;
    float value, low, high;
  };
  const Bound bounds[] = {
      {"top_p", s.top_p, 0, 1},
      {"min_p", s.min_p, 0, 1},
      {"repetition_penalty", s.repetition_penalty, 0.01f, 100},
      {"presence_penalty", s.presence_penalty, -2, 2},
      {"frequency_penalty", s.frequency_penalty, -2, 2},
  };
  for (const Bound& b : bounds)
    if (Status status = check_range(b.name, b.value, b.low, b.high); !status.ok()) return status;
  for (const LogitBias& b : s.logit_bias) {
    if (b.id < 0 || b.id >= vocab)
      return make_error(kBad, "logit_bias names token id {}; ids are 0 to {}", b.id, vocab - 1);
    if (Status status = check_range("a logit_bias", b.bias, -100, 100); !status.ok()) return status;
  }
  return {};
}

Status check_stops(const std::vector<std::string>& stops) {
  if (stops.size() > static_cast<size_t>(kMaxStopStrings))
    return make_error(kBad, "{} stop strings; at most {} can be given", stops.size(), kMaxStopStrings);
  for (const std::string& stop : stops) {
    if (stop.empty()) return make_error(kBad, "a stop string is empty; it would end every answer at once");
    if (stop.size() > static_cast<size_t>(kMaxStopStringBytes))
      return make_error(kBad, "a stop string has {} bytes; at most {} are allowed", stop.size(),
                        kMaxStopStringBytes);
  }
  return {};
}

}  // namespace

const char* to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

Status check_token_ids(const std::vector<int32_t>& ids, int vocab, const char* what) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocab)
      return make_error(kBad, "{} {} is token id {}; the model's ids are 0 to {}", what, i, ids[i],
                        vocab - 1);
  return {};
}

Status validate_request(const Request& request, const RequestLimits& limits) {
  if (Status s = check_lengths(request, limits); !s.ok()) return s;
  if (Status s = check_token_ids(request.prompt, limits.vocab, "prompt token"); !s.ok()) return s;
  if (Status s = check_token_ids(request.stop_ids, limits.vocab, "stop id"); !s.ok()) return s;
  if (Status s = check_sampling(request.sampling, limits.vocab); !s.ok()) return s;
  return check_stops(request.stop_strings);
}

}  // namespace latent::runtime
