// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/check.h"
#include "base/log.h"
#include "base/math.h"
#include "base/parallel.h"
#include "exec/compile.h"
#include "model/build_graph.h"

namespace latent::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

EngineOptions with_defaults(EngineOptions options) {
  if (options.num_threads == 0) options.num_threads = available_cores();
  return options;
}

std::span<const float> row_of(const TensorView& logits, int64_t row) {
  return {logits.row<float>(row), static_cast<size_t>(logits.dim(1))};
}

Status check_finite(std::span<const float> logits, int64_t step, int position) {
  const int bad = find_bad_logit(logits);
  if (bad < 0) return {};
  return make_error(ErrorCode::kNonFinite, "step {}, position {}: logit {} is {}", step, position, bad,
                    logits[static_cast<size_t>(bad)]);
}

}  // namespace

DType cache_dtype(DType activation, const EngineOptions& options) {
  return options.kv_cache_dtype.value_or(activation == DType::kF32 ? DType::kF32 : DType::kBF16);
}

Result<EngineLimits> plan_limits(const model::ModelConfig& config, DType activation, int max_positions,
                                 const EngineOptions& options) {
  const auto require_positive = [](const char* what, int value) -> Status {
    if (value > 0) return {};
    return make_error(ErrorCode::kInvalidArgument, "{} is {}; it must be at least 1", what, value);
  };
  if (Status s = require_positive("the prefill chunk", options.prefill_chunk_tokens); !s) return s.error();
  if (Status s = require_positive("the number of output rows", options.max_output_rows); !s) return s.error();
  if (options.num_threads < 0 || options.num_threads > kMaxThreads)
    return make_error(ErrorCode::kInvalidArgument, "{} threads asked for; there can be 1 to {}",
                      options.num_threads, kMaxThreads);
  if (max_positions < 2)
    return make_error(ErrorCode::kInvalidArgument,
                      "a context of {} tokens; at least 2 are needed, for a prompt and an answer",
                      max_positions);
  const ops::KvLayout layout = model::kv_layout(config, cache_dtype(activation, options));
  EngineLimits limits{
      .vocab = config.vocab, .context_tokens = max_positions, .page_tokens = layout.page_tokens};
  limits.prefill_chunk_tokens = std::min(options.prefill_chunk_tokens, max_positions);
  limits.max_output_rows = std::min(options.max_output_rows, limits.prefill_chunk_tokens);
  limits.max_pages = ceil_div(max_positions, layout.page_tokens);
  limits.num_pages = 1 + limits.max_seqs * limits.max_pages;
  limits.cache_token_bytes = layout.token_bytes() * config.num_layers;
  limits.cache_bytes = layout.page_bytes() * config.num_layers * limits.num_pages;
  return limits;
}

Engine::Engine(model::LoadedModel model, const text::Tokenizer* tokenizer, const EngineOptions& options)
    : model_(std::move(model)),
      tokenizer_(tokenizer),
      options_(with_defaults(options)),
      scheduler_(options.prefill_chunk_tokens) {}

Result<std::unique_ptr<Engine>> Engine::create(model::LoadedModel model, const text::Tokenizer* tokenizer,
                                               const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine(std::move(model), tokenizer, options));
  if (Status s = engine->initialise(); !s) return s.error();
  return engine;
}

Status Engine::initialise() {
  Result<EngineLimits> limits = plan_limits(model_.config, model_.activation, model_.max_positions, options_);
  if (!limits) return limits.error();
  limits_ = *limits;
  const ops::KvLayout layout = model::kv_layout(model_.config, cache_dtype(model_.activation, options_));
  Result<exec::KvCache> cache =
      exec::KvCache::create(layout, model_.config.num_layers, limits_.num_pages, options_.poison);
  if (!cache)
    return cache.error().with_context(
        fmt::format("a cache of {} tokens ({} MiB; a smaller context needs less)", limits_.context_tokens,
                    limits_.cache_bytes >> 20));
  cache_ = *std::move(cache);

  const exec::StepLimits prefill{.max_tokens = limits_.prefill_chunk_tokens,
                                 .max_seqs = 1,
                                 .max_outputs = limits_.max_output_rows,
                                 .max_pages = limits_.max_pages};
  const exec::StepLimits decode{.max_tokens = limits_.max_seqs,
                                .max_seqs = limits_.max_seqs,
                                .max_outputs = limits_.max_seqs,
                                .max_pages = limits_.max_pages};
  Result<std::unique_ptr<exec::Executor>> prefill_executor =
      create_executor(ops::AttentionForm::kMultiHead, prefill);
  if (!prefill_executor) return prefill_executor.error().with_context("prefill");
  prefill_ = *std::move(prefill_executor);
  Result<std::unique_ptr<exec::Executor>> decode_executor =
      create_executor(ops::AttentionForm::kAbsorbed, decode);
  if (!decode_executor) return decode_executor.error().with_context("decode");
  decode_ = *std::move(decode_executor);

  limits_.weight_bytes = model_.weights.num_bytes();
  limits_.prefill_arena_bytes = prefill_->arena_bytes();
  limits_.decode_arena_bytes = decode_->arena_bytes();
  pages_.emplace(limits_.num_pages);
  batch_.emplace(prefill, limits_.page_tokens);
  sampler_.emplace(limits_.vocab);
  return {};
}

Result<std::unique_ptr<exec::Executor>> Engine::create_executor(ops::AttentionForm form,
                                                                const exec::StepLimits& limits) {
  model::BuildOptions build{.types = model::weight_types(model_.weights),
                            .activation = model_.activation,
                            .kv = cache_->layout(),
                            .max_positions = model_.max_positions};
  const exec::CompileOptions compile{.form = form,
                                     .disabled_passes = options_.disabled_passes,
                                     .limits = limits,
                                     .exec = {.num_threads = options_.num_threads,
                                              .deterministic = options_.deterministic,
                                              .poison = options_.poison,
                                              .attention_backend = options_.attention_backend,
                                              .reference_kernels = options_.reference_kernels}};
  return exec::compile(model::build_graph(model_.config, build), &model_.weights, &*cache_, compile);
}

std::vector<int32_t> Engine::stop_ids_of(const Request& request) const {
  std::vector<int32_t> ids = request.stop_ids;
  if (request.ignore_eos) return ids;
  ids.insert(ids.end(), model_.config.eos_ids.begin(), model_.config.eos_ids.end());
  if (tokenizer_ != nullptr)
    ids.insert(ids.end(), tokenizer_->eos_ids().begin(), tokenizer_->eos_ids().end());
  return ids;
}

Result<RequestId> Engine::submit(Request request) {
  const RequestLimits limits{.vocab = limits_.vocab, .context_tokens = limits_.context_tokens};
  if (Status s = validate_request(request, limits); !s) return s.error();
  if (!request.stop_strings.empty() && tokenizer_ == nullptr)
    return make_error(ErrorCode::kInvalidArgument,
                      "stop strings need a tokenizer and the model has none; use stop ids");
  request.stop_ids = stop_ids_of(request);
  const RequestId id = next_id_++;
  auto sequence = std::make_unique<Sequence>(id, std::move(request), tokenizer_);
  sequence->tokens = std::move(sequence->request.prompt);
  sequence->prompt_tokens = sequence->num_tokens();
  sequence->max_tokens =
      sequence->request.max_tokens.value_or(limits_.context_tokens - sequence->prompt_tokens);
  sequence->tokens.reserve(static_cast<size_t>(sequence->prompt_tokens + sequence->max_tokens));
  sequence->output.stats.prompt_tokens = sequence->prompt_tokens;
  if (needs_history(sequence->request.sampling)) {
    sequence->history.emplace(limits_.vocab);
    for (const int32_t token : sequence->tokens) sequence->history->add_prompt(token);
  }
  scheduler_.add(sequence.get());
  sequences_.emplace(id, std::move(sequence));
  return id;
}

void Engine::cancel(RequestId id) {
  const auto it = sequences_.find(id);
  if (it != sequences_.end() && it->second->output.state != RequestState::kFinished)
    finish(*it->second, FinishReason::kCancelled);
}

Result<RequestOutput> Engine::poll(RequestId id) {
  const auto it = sequences_.find(id);
  if (it == sequences_.end()) return make_error(ErrorCode::kNotFound, "no request {}", id);
  RequestOutput output = it->second->output;
  if (output.state == RequestState::kFinished) {
    sequences_.erase(it);
    return output;
  }
  RequestOutput& kept = it->second->output;
  kept.token_ids.clear();
  kept.text.clear();
  kept.logprobs.clear();
  return output;
}

void Engine::step() {
  const std::optional<StepWork> work = scheduler_.next();
  if (!work) return;
  const Clock::time_point start = Clock::now();
  Sequence& sequence = *work->sequence;
  sequence.output.state = work->is_prompt ? RequestState::kPrefill : RequestState::kDecode;
  double& seconds =
      work->is_prompt ? sequence.output.stats.prefill_seconds : sequence.output.stats.decode_seconds;
  if (Status s = grow_pages(sequence.pages, work->end); !s)
    return finish(sequence, FinishReason::kError, s.error());
  const bool is_last = work->end == sequence.num_tokens();
  const Result<TensorView> logits =
      run(work->is_prompt ? *prefill_ : *decode_, {.tokens = sequence.tokens,
                                                   .pages = sequence.pages,
                                                   .begin = work->begin,
                                                   .end = work->end,
                                                   .num_outputs = is_last ? 1 : 0});
  if (!logits) return finish(sequence, FinishReason::kError, logits.error());
  sequence.num_computed = work->end;
  if (is_last) accept_logits(sequence, row_of(*logits, 0));
  seconds += seconds_since(start);
}

Result<TensorView> Engine::run(exec::Executor& executor, const BatchRows& rows) {
  ++num_steps_;
  batch_->clear();
  batch_->add(rows);
  return executor.run(batch_->inputs());
}

void Engine::accept_logits(Sequence& sequence, std::span<const float> logits) {
  const int position = sequence.num_tokens();
  if (Status s = check_finite(logits, num_steps_, position); !s)
    return finish(sequence, FinishReason::kError, s.error());
  const SamplingParams& sampling = sequence.request.sampling;
  const TokenHistory* history = sequence.history ? &*sequence.history : nullptr;
  const Result<int32_t> id = sampler_->sample(logits, sampling, history, static_cast<uint64_t>(position));
  if (!id) return finish(sequence, FinishReason::kError, id.error());
  if (sampling.num_logprobs >= 0)
    sequence.output.logprobs.push_back(sampler_->logprobs(logits, *id, sampling.num_logprobs));
  accept_token(sequence, *id);
}

void Engine::accept_token(Sequence& sequence, int32_t id) {
  sequence.tokens.push_back(id);
  sequence.output.token_ids.push_back(id);
  sequence.output.stats.generated_tokens = sequence.num_generated();
  if (sequence.history) sequence.history->add_output(id);
  const std::vector<int32_t>& stop_ids = sequence.request.stop_ids;
  if (std::find(stop_ids.begin(), stop_ids.end(), id) != stop_ids.end())
    return finish(sequence, FinishReason::kStop);
  if (sequence.text.push(id, sequence.output.text)) return finish(sequence, FinishReason::kStop);
  if (sequence.num_generated() == sequence.max_tokens) finish(sequence, FinishReason::kLength);
}

void Engine::finish(Sequence& sequence, FinishReason reason, std::optional<Error> error) {
  scheduler_.remove(&sequence);
  release_pages(sequence.pages);
  sequence.text.finish(sequence.output.text);
  sequence.output.state = RequestState::kFinished;
  sequence.output.finish = reason;
  if (error) log(LogLevel::kWarn, "request {} ended: {}", sequence.id, error->message);
  sequence.output.error = std::move(error);
}

Status Engine::grow_pages(std::vector<int32_t>& pages, int num_tokens) {
  while (static_cast<int>(pages.size()) * limits_.page_tokens < num_tokens) {
    const std::optional<int32_t> page = pages_->allocate();
    if (!page)
      return make_error(ErrorCode::kExhausted,
                        "no cache page left for {} tokens; the pool has {} pages of {}", num_tokens,
                        limits_.num_pages - 1, limits_.page_tokens);
    pages.push_back(*page);
  }
  return {};
}

void Engine::release_pages(std::vector<int32_t>& pages) {
  for (const int32_t page : pages)
    if (pages_->release(page)) cache_->poison_page(page);
  pages.clear();
}

Status Engine::score(const std::vector<int32_t>& token_ids, const LogitsSink& sink) {
  const int num_tokens = static_cast<int>(std::min<size_t>(token_ids.size(), INT32_MAX));
  if (!idle())
    return make_error(ErrorCode::kExhausted, "the engine is serving a request; scoring needs it idle");
  if (num_tokens == 0)
    return make_error(ErrorCode::kInvalidArgument, "nothing to score: the text has no tokens");
  if (num_tokens > limits_.context_tokens)
    return make_error(ErrorCode::kInvalidArgument, "{} tokens to score; the context limit is {}", num_tokens,
                      limits_.context_tokens);
  if (Status s = check_token_ids(token_ids, limits_.vocab, "token"); !s) return s;
  std::vector<int32_t> pages;
  Status status = grow_pages(pages, num_tokens);
  for (int begin = 0; status.ok() && begin < num_tokens;) {
    const int end = std::min(begin + limits_.max_output_rows, num_tokens);
    const Result<TensorView> logits =
        run(*prefill_,
            {.tokens = token_ids, .pages = pages, .begin = begin, .end = end, .num_outputs = end - begin});
    if (!logits) status = logits.error();
    for (int row = 0; status.ok() && row < end - begin; ++row)
      status = check_finite(row_of(*logits, row), num_steps_, begin + row);
    if (status.ok()) status = sink(begin, *logits);
    begin = end;
  }
  release_pages(pages);
  return status;
}

void Engine::check_integrity() const {
  pages_->check_integrity();
  int held = 0;
  for (const auto& [id, sequence] : sequences_) held += static_cast<int>(sequence->pages.size());
  CHECK(held == pages_->num_held(), "{} pages are held, requests know of {}", pages_->num_held(), held);
}

}  // namespace latent::runtime
