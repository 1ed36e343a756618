// SPDX-License-Identifier: Apache-2.0
// Runs one request through a loaded model the way the runtime will: prompt tokens by the multi-head graph,
// generated ones by the absorbed graph, over the same cache.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "exec/executor.h"
#include "model/build_graph.h"
#include "model/loader.h"

namespace latent::testing {

using Logits = std::vector<std::vector<float>>;  // one row a token

class ModelRunner {
 public:
  struct Options {
    int max_tokens = 128;  // in the cache
    PoisonPattern poison = PoisonPattern::kNan;
    std::optional<DType> cache_dtype;  // else that of the activations
  };
  // CHECKs that everything works out. The model must outlive the runner.
  ModelRunner(model::LoadedModel* model, const Options& options);

  // Starts a request.
  void reset() { length_ = 0; }
  // Appends tokens by the prompt graph (or the other) in one step; logits of each of them.
  Logits prompt(std::span<const int32_t> tokens) { return step(*prefill_, tokens); }
  Logits generate(std::span<const int32_t> tokens) { return step(*decode_, tokens); }

  exec::Executor& prefill() { return *prefill_; }

 private:
  std::unique_ptr<exec::Executor> make(ops::AttentionForm form);
  Logits step(exec::Executor& executor, std::span<const int32_t> tokens);

  model::LoadedModel* model_;
  Options options_;
  exec::KvCache cache_;
  std::unique_ptr<exec::Executor> prefill_;
  std::unique_ptr<exec::Executor> decode_;
  int length_ = 0;
};

// Runs one graph without a past over `tokens`, for graphs of single blocks; the first output as floats, a row
// a token.
Logits run_graph(graph::Graph graph, graph::WeightStore* weights, const ops::KvLayout& layout, int num_layers,
                 std::span<const int32_t> tokens);

}  // namespace latent::testing
