// SPDX-License-Identifier: Apache-2.0
// Engine: a model that serves requests. Prompts go through a prefill graph (multi-head attention) in chunks,
// generated tokens one at a time through a decode graph (absorbed attention); both share weights and cache.
//
// All memory is reserved by create(). One thread owns the engine: it submits, steps and polls. No request can
// end the process: what is wrong with one is its own error.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "exec/executor.h"
#include "model/loader.h"
#include "runtime/batch.h"
#include "runtime/page_pool.h"
#include "runtime/request.h"
#include "runtime/sampler.h"
#include "runtime/scheduler.h"

namespace latent::runtime {

inline constexpr int kMaxThreads = 1024;

struct EngineOptions {
  int num_threads = 0;  // 0: every core
  // Contract C5: results do not depend on chunking or on other requests, bit for bit.
  bool deterministic = false;
  PoisonPattern poison = PoisonPattern::kNone;
  std::string attention_backend = {};        // forced by name; empty: the best that serves the model
  bool reference_kernels = false;            // every operator by its reference
  std::optional<DType> kv_cache_dtype = {};  // f32, f16 or bf16; unset: f32 for f32 activations, else bf16
  int prefill_chunk_tokens = 512;
  int max_output_rows = 1;  // rows of logits of one prefill step; scoring is faster with more
  std::set<std::string> disabled_passes = {};
};

// Everything that bounds a request or reserves memory, from one place (contract C13).
struct EngineLimits {
  int vocab = 0;
  int context_tokens = 0;  // prompt and output of one request; also the rows of the rope table
  int max_seqs = 1;        // requests of one step
  int prefill_chunk_tokens = 0;
  int max_output_rows = 0;
  int page_tokens = 0;
  int num_pages = 0;  // the null page included
  int max_pages = 0;  // of one request
  int64_t weight_bytes = 0;
  int64_t cache_bytes = 0;
  int64_t cache_token_bytes = 0;  // of one token in all layers
  int64_t prefill_arena_bytes = 0;
  int64_t decode_arena_bytes = 0;
};

// The type of the cache for activations of this type.
DType cache_dtype(DType activation, const EngineOptions& options);

// The limits that create() would set for a model, memory but for the cache left 0.
Result<EngineLimits> plan_limits(const model::ModelConfig& config, DType activation, int max_positions,
                                 const EngineOptions& options);

class Engine {
 public:
  // `tokenizer` may be null (requests of token ids, no text); else it must outlive the engine. kUnsupported
  // names the combination that cannot be served, kExhausted the memory that is not there.
  static Result<std::unique_ptr<Engine>> create(model::LoadedModel model, const text::Tokenizer* tokenizer,
                                                const EngineOptions& options);

  const EngineLimits& limits() const { return limits_; }
  const model::LoadedModel& model() const { return model_; }
  const exec::Executor& prefill() const { return *prefill_; }
  const exec::Executor& decode() const { return *decode_; }
  int num_threads() const { return options_.num_threads; }

  // Queues a request, or refuses it (validate_request).
  Result<RequestId> submit(Request request);
  // Ends a request in any state; its pages are free at once. Without effect on one that has ended.
  void cancel(RequestId id);
  // Computes one step, if there is anything to do.
  void step();
  bool idle() const { return !scheduler_.next().has_value(); }
  // What is new since the last poll. The answer that says kFinished is the last: the id is then forgotten.
  Result<RequestOutput> poll(RequestId id);

  // Logits of every position of a prompt, in order, a block of rows at a time: [num_rows, vocab] f32, valid
  // during the call; an error it returns ends the scoring. The engine must be idle.
  using LogitsSink = std::function<Status(int first_position, const TensorView& logits)>;
  Status score(const std::vector<int32_t>& token_ids, const LogitsSink& sink);

  // CHECKs that no page is lost; all are free when no request holds one.
  void check_integrity() const;

 private:
  Engine(model::LoadedModel model, const text::Tokenizer* tokenizer, const EngineOptions& options);
  Status initialise();
  Result<std::unique_ptr<exec::Executor>> create_executor(ops::AttentionForm form,
                                                          const exec::StepLimits& limits);
  std::vector<int32_t> stop_ids_of(const Request& request) const;

  Status grow_pages(std::vector<int32_t>& pages, int num_tokens);
  void release_pages(std::vector<int32_t>& pages);
  // One step of one sequence; its logits rows.
  Result<TensorView> run(exec::Executor& executor, const BatchRows& rows);
  void accept_logits(Sequence& sequence, std::span<const float> logits);
  void accept_token(Sequence& sequence, int32_t id);
  void finish(Sequence& sequence, FinishReason reason, std::optional<Error> error = {});

  model::LoadedModel model_;
  const text::Tokenizer* tokenizer_;
  EngineOptions options_;
  EngineLimits limits_;
  std::optional<exec::KvCache> cache_;
  std::unique_ptr<exec::Executor> prefill_;
  std::unique_ptr<exec::Executor> decode_;
  std::optional<PagePool> pages_;
  std::optional<Batch> batch_;
  std::optional<Sampler> sampler_;
  Scheduler scheduler_;
  std::map<RequestId, std::unique_ptr<Sequence>> sequences_;
  RequestId next_id_ = 1;
  int64_t num_steps_ = 0;
};

}  // namespace latent::runtime
