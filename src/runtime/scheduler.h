// SPDX-License-Identifier: Apache-2.0
// Scheduler: which tokens of which request the next step computes. First come, first served, one request at a
// time; the engine asks only for steps, so serving more at once changes this file alone.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/request.h"
#include "runtime/sampler.h"
#include "runtime/text_stream.h"

namespace latent::runtime {

// A request in the engine. Everything but what the engine is told through step() and cancel().
struct Sequence {
  Sequence(RequestId id_, Request request_, const text::Tokenizer* tokenizer)
      : id(id_), request(std::move(request_)), text(tokenizer, request.stop_strings) {}

  RequestId id;
  Request request;              // its prompt is moved to `tokens`
  std::vector<int32_t> tokens;  // prompt, then output
  int prompt_tokens = 0;
  int max_tokens = 0;          // of output
  int num_computed = 0;        // tokens whose keys are in the cache
  std::vector<int32_t> pages;  // the block table
  TextStream text;
  std::optional<TokenHistory> history;
  RequestOutput output;  // since the last poll; state and stats are totals

  int num_tokens() const { return static_cast<int>(tokens.size()); }
  int num_generated() const { return num_tokens() - prompt_tokens; }
};

// Positions [begin, end) of a sequence, none of them in the cache yet. Prompt positions and generated ones
// are never in one step: the form of attention depends on which they are (contract C5).
struct StepWork {
  Sequence* sequence = nullptr;
  int begin = 0;
  int end = 0;
  bool is_prompt = false;
};

class Scheduler {
 public:
  explicit Scheduler(int prefill_chunk_tokens) : prefill_chunk_tokens_(prefill_chunk_tokens) {}

  void add(Sequence* sequence) { queue_.push_back(sequence); }
  // A finished or cancelled sequence; in any state, also if it is not here.
  void remove(const Sequence* sequence);
  // nullopt when there is nothing to do.
  std::optional<StepWork> next() const;

 private:
  int prefill_chunk_tokens_;
  std::deque<Sequence*> queue_;  // the first is the one that runs
};

}  // namespace latent::runtime
