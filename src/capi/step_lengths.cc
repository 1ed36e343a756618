// SPDX-License-Identifier: Apache-2.0
#include "capi/step_lengths.h"

#include <algorithm>

#include "capi/read_struct.h"

namespace latent::capi {
namespace {

constexpr const char* kStep = "latent_attention_step";

Status check_q_starts(const int32_t* q_starts, int num_seqs, int max_tokens) {
  if (q_starts[0] != 0)
    return make_error(ErrorCode::kInvalidArgument, "q_starts[0] is {}; rows begin at 0", q_starts[0]);
  for (int s = 0; s < num_seqs; ++s)
    if (q_starts[s + 1] < q_starts[s])
      return make_error(ErrorCode::kInvalidArgument, "q_starts[{}] {} is below q_starts[{}] {}", s + 1,
                        q_starts[s + 1], s, q_starts[s]);
  if (q_starts[num_seqs] > max_tokens)
    return make_error(ErrorCode::kInvalidArgument, "q_starts[{}] {} is above max_tokens {}", num_seqs,
                      q_starts[num_seqs], max_tokens);
  return {};
}

Status check_kv_lens(const int32_t* kv_lens, int num_seqs, int max_kv_len) {
  for (int s = 0; s < num_seqs; ++s)
    if (kv_lens[s] < 0 || kv_lens[s] > max_kv_len)
      return make_error(ErrorCode::kInvalidArgument, "kv_lens[{}] {} lies outside [0, max_kv_len {}]", s,
                        kv_lens[s], max_kv_len);
  return {};
}

Status check_uniform(const latent_attention_step& step, const attention::Limits& limits, bool on_device) {
  if (step.max_q_len < 0 || step.max_q_len > limits.max_tokens)
    return make_error(ErrorCode::kInvalidArgument, "{}.max_q_len {} lies outside [0, max_tokens {}]", kStep,
                      step.max_q_len, limits.max_tokens);
  // On a device it may be the longest of many.
  if (!on_device && int64_t{step.num_seqs} * step.max_q_len > limits.max_tokens)
    return make_error(ErrorCode::kInvalidArgument, "{} requests of {} query rows are above max_tokens {}",
                      step.num_seqs, step.max_q_len, limits.max_tokens);
  return {};
}

Status check_step(const latent_attention_step& step, const attention::Limits& limits, bool on_device) {
  if (step.num_seqs < 0 || step.num_seqs > limits.max_seqs)
    return make_error(ErrorCode::kInvalidArgument, "{}.num_seqs {} lies outside [0, max_seqs {}]", kStep,
                      step.num_seqs, limits.max_seqs);
  if (step.kv_lens == nullptr && !on_device && step.num_seqs > 0)
    return make_error(ErrorCode::kInvalidArgument, "{}.kv_lens is NULL; on a host it is needed", kStep);
  const Status rows = step.q_starts == nullptr
                          ? check_uniform(step, limits, on_device)
                          : check_q_starts(step.q_starts, step.num_seqs, limits.max_tokens);
  if (!rows || step.kv_lens == nullptr) return rows;
  return check_kv_lens(step.kv_lens, step.num_seqs, limits.max_kv_len);
}

}  // namespace

void StepLengths::reserve(const attention::Limits& limits) {
  q_starts_.reserve(static_cast<size_t>(limits.max_seqs) + 1);
  kv_lens_.reserve(static_cast<size_t>(limits.max_seqs));
}

Status StepLengths::assign(const latent_attention_step* given, const attention::Limits& limits,
                           bool on_device) {
  const Result<latent_attention_step> read = read_struct(given, kStep);
  if (!read) return read.error();
  const latent_attention_step& step = *read;
  if (Status s = check_step(step, limits, on_device); !s) return s;
  const auto count = static_cast<size_t>(step.num_seqs);
  if (step.q_starts != nullptr) {
    q_starts_.assign(step.q_starts, step.q_starts + count + 1);
  } else {
    q_starts_.resize(count + 1);
    for (size_t s = 0; s <= count; ++s)
      q_starts_[s] = static_cast<int32_t>(
          std::min<int64_t>(static_cast<int64_t>(s) * step.max_q_len, limits.max_tokens));
  }
  if (step.kv_lens != nullptr)
    kv_lens_.assign(step.kv_lens, step.kv_lens + count);
  else
    kv_lens_.assign(count, limits.max_kv_len);
  return {};
}

int StepLengths::max_q_len() const {
  int longest = 0;
  for (size_t s = 0; s + 1 < q_starts_.size(); ++s)
    longest = std::max(longest, q_starts_[s + 1] - q_starts_[s]);
  return longest;
}

Status StepLengths::check_same(const int32_t* q_starts, const int32_t* kv_lens) const {
  for (size_t s = 0; s < q_starts_.size(); ++s)
    if (q_starts[s] != q_starts_[s])
      return make_error(ErrorCode::kInvalidArgument, "q_starts[{}] is {}, and the step was planned with {}",
                        s, q_starts[s], q_starts_[s]);
  for (size_t s = 0; s < kv_lens_.size(); ++s)
    if (kv_lens[s] != kv_lens_[s])
      return make_error(ErrorCode::kInvalidArgument, "kv_lens[{}] is {}, and the step was planned with {}", s,
                        kv_lens[s], kv_lens_[s]);
  return {};
}

}  // namespace latent::capi
