// SPDX-License-Identifier: Apache-2.0
#include "model/model_runner.h"

#include <numeric>

#include "base/check.h"
#include "base/math.h"
#include "graph/pipeline.h"
#include "tensor/convert.h"

namespace latent::testing {
namespace {

constexpr int kPageTokens = 16;  // small, so that short requests span pages

template <class T>
T checked(Result<T> result) {
  CHECK(result.ok(), "{}", result.ok() ? "" : result.error().message);
  return *std::move(result);
}

// The pages of the only request, in an order that is not the natural one; page 0 is the null page.
std::vector<int32_t> page_table(int num_pages) {
  std::vector<int32_t> pages(static_cast<size_t>(num_pages));
  std::iota(pages.rbegin(), pages.rend(), 1);
  return pages;
}

exec::KvCache make_cache(const ops::KvLayout& layout, int num_layers, int num_pages, PoisonPattern poison) {
  return checked(exec::KvCache::create(layout, num_layers, num_pages + 1, poison));
}

// The only request's step: `tokens` follow `past` ones; logits of every token are wanted.
Logits run_step(exec::Executor& executor, std::span<const int32_t> tokens, int past, int num_pages) {
  const auto n = static_cast<int32_t>(tokens.size());
  const std::vector<int32_t> pages = page_table(num_pages);
  std::vector<int32_t> positions(tokens.size()), slots, rows(tokens.size());
  std::iota(positions.begin(), positions.end(), past);
  std::iota(rows.begin(), rows.end(), 0);
  for (const int32_t p : positions)
    slots.push_back(pages[static_cast<size_t>(p / kPageTokens)] * kPageTokens + p % kPageTokens);
  const std::vector<int32_t> q_starts = {0, n}, kv_lens = {past + n};
  const TensorView out = checked(executor.run({.token_ids = tokens,
                                               .positions = positions,
                                               .slots = slots,
                                               .q_starts = q_starts,
                                               .kv_lens = kv_lens,
                                               .block_table = pages,
                                               .block_table_width = num_pages,
                                               .output_rows = rows}));
  Logits logits(tokens.size(), std::vector<float>(static_cast<size_t>(out.dim(1))));
  for (int64_t i = 0; i < out.dim(0); ++i)
    for (int64_t j = 0; j < out.dim(1); ++j)
      logits[static_cast<size_t>(i)][static_cast<size_t>(j)] =
          element_to_float(out.raw(), out.dtype(), i * out.stride(0) + j);
  return logits;
}

}  // namespace

ModelRunner::ModelRunner(model::LoadedModel* model, const Options& options)
    : model_(model),
      options_(options),
      cache_(
          make_cache(kv_layout(model->config, options.cache_dtype.value_or(model->activation), kPageTokens),
                     model->config.num_layers, ceil_div(options.max_tokens, kPageTokens), options.poison)),
      prefill_(make(ops::AttentionForm::kMultiHead)),
      decode_(make(ops::AttentionForm::kAbsorbed)) {}

std::unique_ptr<exec::Executor> ModelRunner::make(ops::AttentionForm form) {
  graph::Graph graph = model::build_graph(model_->config, {.types = model::weight_types(model_->weights),
                                                           .activation = model_->activation,
                                                           .kv = cache_.layout(),
                                                           .max_positions = model_->max_positions});
  checked(graph::run_pipeline(graph, {.form = form, .poison = options_.poison, .disabled = {}}));
  const exec::StepLimits limits{.max_tokens = options_.max_tokens,
                                .max_seqs = 1,
                                .max_outputs = options_.max_tokens,
                                .max_pages = cache_.num_pages() - 1};
  return checked(exec::Executor::create(std::move(graph), &model_->weights, &cache_, limits,
                                        {.poison = options_.poison, .attention_backend = {}}));
}

Logits ModelRunner::step(exec::Executor& executor, std::span<const int32_t> tokens) {
  Logits logits = run_step(executor, tokens, length_, cache_.num_pages() - 1);
  length_ += static_cast<int>(tokens.size());
  return logits;
}

Logits run_graph(graph::Graph graph, graph::WeightStore* weights, const ops::KvLayout& layout, int num_layers,
                 std::span<const int32_t> tokens) {
  const auto n = static_cast<int>(tokens.size());
  const int num_pages = ceil_div(n, kPageTokens);
  exec::KvCache cache = make_cache(layout, num_layers, num_pages, PoisonPattern::kNan);
  checked(graph::run_pipeline(graph, {.poison = PoisonPattern::kNan, .disabled = {}}));
  const exec::StepLimits limits{.max_tokens = n, .max_seqs = 1, .max_outputs = n, .max_pages = num_pages};
  const auto executor = checked(exec::Executor::create(
      std::move(graph), weights, &cache, limits, {.poison = PoisonPattern::kNan, .attention_backend = {}}));
  return run_step(*executor, tokens, 0, num_pages);
}

}  // namespace latent::testing
