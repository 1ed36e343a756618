// SPDX-License-Identifier: Apache-2.0
// Executor: a graph bound to weights, cache and kernels. Reserves every byte at creation; a step allocates
// nothing. One step at a time; different executors may share weights and cache, one running at a time.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "device/poison.h"
#include "exec/kv_cache.h"
#include "graph/ir.h"
#include "graph/weights.h"

namespace latent::exec {

struct ExecOptions {
  int num_threads = 1;
  bool deterministic = false;
  // C3: every buffer is filled before the node that writes it runs, scratch included.
  PoisonPattern poison = default_poison();
  std::string attention_backend;   // forced by name; empty: the best that supports the case
  bool reference_kernels = false;  // run every operator by its reference, for comparison
};

// The largest step (contract C13).
struct StepLimits {
  int max_tokens = 0;
  int max_seqs = 0;
  int max_outputs = 0;
  int max_pages = 0;  // block-table columns: pages of the longest request
};

// One step, host memory, valid during run(). Ids and positions are checked where they enter, not here.
struct StepInputs {
  std::span<const int32_t> token_ids;    // [num_tokens]
  std::span<const int32_t> positions;    // [num_tokens]
  std::span<const int32_t> slots;        // [num_tokens], kSkipSlot for padded rows
  std::span<const int32_t> q_starts;     // [num_seqs + 1]
  std::span<const int32_t> kv_lens;      // [num_seqs], this step's tokens included
  std::span<const int32_t> block_table;  // [num_seqs, block_table_width]
  int block_table_width = 0;             // at most StepLimits::max_pages
  std::span<const int32_t> output_rows;  // [num_outputs], rows whose logits are wanted
};

class Executor {
 public:
  // Called after each node with the view of each of its outputs, when set; for compare and trace. False ends
  // the step with kCancelled.
  using Observer = std::function<bool(const graph::Node&, const graph::Value&, const TensorView&)>;

  // Runs the graph's prologue into `weights` (results shared by name), picks kernels, plans memory. `weights`
  // and `cache` must outlive the executor. kUnsupported if a forced backend refuses, kExhausted without
  // memory.
  static Result<std::unique_ptr<Executor>> create(graph::Graph graph, graph::WeightStore* weights,
                                                  KvCache* cache, const StepLimits& limits,
                                                  const ExecOptions& options);
  virtual ~Executor() = default;

  // The graph's first output for this step: [num_outputs, vocab] f32 logits, valid until the next run().
  virtual Result<TensorView> run(const StepInputs& inputs) = 0;
  virtual void set_observer(Observer observer) = 0;

  virtual const graph::Graph& graph() const = 0;
  // Bytes of intermediates and scratch; without reuse of memory by live range the first figure would be the
  // second.
  virtual int64_t arena_bytes() const = 0;
  virtual int64_t arena_bytes_without_reuse() const = 0;
};

}  // namespace latent::exec
