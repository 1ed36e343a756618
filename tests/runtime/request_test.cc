// SPDX-License-Identifier: Apache-2.0
#include "runtime/request.h"

#include <gtest/gtest.h>

#include <climits>
#include <cmath>
#include <functional>

namespace latent::runtime {
namespace {

constexpr RequestLimits kLimits{.vocab = 100, .context_tokens = 16};

Request good() {
  Request request;
  request.prompt = {0, 99, 5};
  return request;
}

// The error of a good request changed by `change`, or "" if it is still good.
std::string refusal(const std::function<void(Request&)>& change) {
  Request request = good();
  change(request);
  const Status status = validate_request(request, kLimits);
  if (status.ok()) return "";
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  return status.error().message;
}

TEST(ValidateRequest, boundary_values_pass) {
  EXPECT_EQ(refusal([](Request&) {}), "");
  EXPECT_EQ(refusal([](Request& r) { r.prompt.assign(15, 1); }), "");
  EXPECT_EQ(refusal([](Request& r) { r.max_tokens = 13; }), "");
  EXPECT_EQ(refusal([](Request& r) { r.max_tokens = 1; }), "");
  EXPECT_EQ(refusal([](Request& r) { r.stop_ids = {0, 99}; }), "");
  EXPECT_EQ(refusal([](Request& r) { r.sampling.logit_bias = {{0, -100}, {99, 100}}; }), "");
  for (const float t : {0.0f, 1e-30f, 1e-4f, 1.0f, 1e6f})
    EXPECT_EQ(refusal([t](Request& r) { r.sampling.temperature = t; }), "") << t;
  for (const float p : {0.0f, 1e-9f, 1.0f})
    EXPECT_EQ(refusal([p](Request& r) { r.sampling.top_p = p; }), "") << p;
  for (const int k : {-1, 0, 1, 101, INT_MAX})
    EXPECT_EQ(refusal([k](Request& r) { r.sampling.top_k = k; }), "") << k;
}

// contract: C13 C15
TEST(ValidateRequest, lengths_are_refused_with_both_numbers) {
  EXPECT_NE(refusal([](Request& r) { r.prompt.clear(); }).find("empty"), std::string::npos);
  for (const size_t n : {16, 17, 160}) {
    const std::string message = refusal([n](Request& r) { r.prompt.assign(n, 1); });
    EXPECT_NE(message.find(std::to_string(n) + " tokens"), std::string::npos) << message;
    EXPECT_NE(message.find("limit is 16"), std::string::npos) << message;
  }
  // A prompt that is too long is the error, whatever max_tokens says; no number goes negative.
  const std::string message = refusal([](Request& r) {
    r.prompt.assign(20, 1);
    r.max_tokens = 5;
  });
  EXPECT_NE(message.find("the prompt has 20 tokens"), std::string::npos) << message;
  for (const int n : {0, -1, INT_MIN})
    EXPECT_NE(refusal([n](Request& r) { r.max_tokens = n; }).find(std::to_string(n)), std::string::npos);
  for (const int n : {14, INT_MAX}) {
    const std::string too_many = refusal([n](Request& r) { r.max_tokens = n; });
    EXPECT_NE(too_many.find("max_tokens " + std::to_string(n)), std::string::npos) << too_many;
    EXPECT_NE(too_many.find("limit is 16"), std::string::npos) << too_many;
  }
}

// contract: C7 C15
TEST(ValidateRequest, ids_outside_the_vocabulary_are_refused_by_name) {
  for (const int32_t id : {-1, 100, INT_MAX, INT_MIN}) {
    const std::string value = std::to_string(id);
    for (const std::string& message :
         {refusal([id](Request& r) { r.prompt[1] = id; }), refusal([id](Request& r) {
            r.stop_ids = {3, id};
          }),
          refusal([id](Request& r) {
            r.sampling.logit_bias = {{id, 1.0f}};
          })}) {
      EXPECT_NE(message.find(value), std::string::npos) << message;
      EXPECT_NE(message.find("0 to 99"), std::string::npos) << message;
    }
  }
  EXPECT_NE(refusal([](Request& r) { r.prompt[1] = 100; }).find("prompt token 1"), std::string::npos);
}

// contract: C15
TEST(ValidateRequest, sampling_values_outside_their_range_are_refused) {
  const auto expect_refused = [](const char* name, float SamplingParams::*field,
                                 std::initializer_list<float> values) {
    for (const float value : values) {
      const std::string message = refusal([&](Request& r) { r.sampling.*field = value; });
      EXPECT_NE(message.find(name), std::string::npos) << value << ": " << message;
    }
  };
  const float nan = NAN, inf = INFINITY;
  expect_refused("temperature", &SamplingParams::temperature, {-1.0f, nan, inf});
  expect_refused("top_p", &SamplingParams::top_p, {-0.1f, 1.1f, nan, inf});
  expect_refused("min_p", &SamplingParams::min_p, {-0.1f, 1.1f, nan});
  expect_refused("repetition_penalty", &SamplingParams::repetition_penalty, {0.0f, -1.0f, 1e9f, nan});
  expect_refused("presence_penalty", &SamplingParams::presence_penalty, {-2.1f, 2.1f, nan});
  expect_refused("frequency_penalty", &SamplingParams::frequency_penalty, {-2.1f, inf, nan});
  EXPECT_NE(refusal([](Request& r) { r.sampling.top_k = -2; }).find("-2"), std::string::npos);
  EXPECT_NE(refusal([](Request& r) { r.sampling.num_logprobs = 21; }).find("21"), std::string::npos);
  EXPECT_NE(refusal([](Request& r) {
              r.sampling.logit_bias = {{1, NAN}};
            }).find("logit_bias"),
            std::string::npos);
}

// contract: C15
TEST(ValidateRequest, stop_strings_are_bounded) {
  EXPECT_NE(refusal([](Request& r) { r.stop_strings = {"a", ""}; }).find("empty"), std::string::npos);
  EXPECT_NE(refusal([](Request& r) { r.stop_strings.assign(17, "a"); }).find("17"), std::string::npos);
  EXPECT_NE(refusal([](Request& r) { r.stop_strings = {std::string(1025, 'a')}; }).find("1025"),
            std::string::npos);
}

}  // namespace
}  // namespace latent::runtime
