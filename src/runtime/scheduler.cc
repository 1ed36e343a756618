// SPDX-License-Identifier: Apache-2.0
#include "runtime/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace latent::runtime {

void Scheduler::remove(const Sequence* sequence) { std::erase(queue_, sequence); }

std::optional<StepWork> Scheduler::next() const {
  if (queue_.empty()) return std::nullopt;
  Sequence* sequence = queue_.front();
  const int begin = sequence->num_computed;
  CHECK(begin < sequence->num_tokens(), "request {} has nothing left to compute", sequence->id);
  const bool is_prompt = begin < sequence->prompt_tokens;
  const int end = is_prompt ? std::min(begin + prefill_chunk_tokens_, sequence->prompt_tokens) : begin + 1;
  return StepWork{sequence, begin, end, is_prompt};
}

}  // namespace latent::runtime
