// SPDX-License-Identifier: Apache-2.0
// The lengths of a step, checked and kept: what a plan was made for.
#pragma once

#include <latent/attention.h>

#include <cstdint>
#include <vector>

#include "attention/backend.h"

namespace latent::capi {

class StepLengths {
 public:
  // Takes the memory for the largest step.
  void reserve(const attention::Limits& limits);

  // Checks a step against the limits and keeps its lengths. On a device lengths that are not given are taken
  // for as long as they can be. Allocates nothing.
  Status assign(const latent_attention_step* given, const attention::Limits& limits, bool on_device);

  attention::SeqLengths lengths() const { return {q_starts_, kv_lens_}; }
  int num_seqs() const { return static_cast<int>(kv_lens_.size()); }
  int max_q_len() const;

  // Whether operands in host memory have these lengths; names the first difference.
  Status check_same(const int32_t* q_starts, const int32_t* kv_lens) const;

 private:
  std::vector<int32_t> q_starts_, kv_lens_;
};

}  // namespace latent::capi
