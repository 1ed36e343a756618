// SPDX-License-Identifier: Apache-2.0
// Batch: turns "these positions of these requests" into the arrays of one step. Owns the arrays, sized once
// for the largest step; a step only overwrites them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/executor.h"

namespace latent::runtime {

// One request's rows of a step: positions [begin, end) of its tokens, of which those before `begin` are in
// the cache already.
struct BatchRows {
  std::span<const int32_t> tokens;  // of the whole request
  std::span<const int32_t> pages;   // its block table; covers at least `end` tokens
  int begin = 0;
  int end = 0;
  int num_outputs = 0;  // logits are wanted of the last num_outputs rows
};

class Batch {
 public:
  Batch(const exec::StepLimits& limits, int page_tokens);

  void clear();
  // CHECKs the limits: the scheduler knows them.
  void add(const BatchRows& rows);
  // Requests that do not exist: one row each, no keys, no slot, the null page (for steps of a fixed size).
  void add_padding(int num_seqs);

  int num_tokens() const { return static_cast<int>(token_ids_.size()); }
  int num_seqs() const { return static_cast<int>(kv_lens_.size()); }
  int num_outputs() const { return static_cast<int>(output_rows_.size()); }
  // Views of this object's arrays.
  exec::StepInputs inputs() const;

 private:
  void add_row(int32_t token, int32_t position, int32_t slot);
  void end_seq(int kv_len, std::span<const int32_t> pages);

  exec::StepLimits limits_;
  int page_tokens_;
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> slots_;
  std::vector<int32_t> q_starts_;
  std::vector<int32_t> kv_lens_;
  std::vector<int32_t> block_table_;  // [num_seqs, limits.max_pages], the null page past a request's last
  std::vector<int32_t> output_rows_;
};

}  // namespace latent::runtime
