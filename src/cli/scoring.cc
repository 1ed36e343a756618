// SPDX-License-Identifier: Apache-2.0
#include "cli/scoring.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "cli/interrupt.h"

namespace latent::cli {

double log_probability(std::span<const float> logits, int32_t id) {
  const double best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - best);
  return logits[static_cast<size_t>(id)] - best - std::log(sum);
}

Status score_rows(runtime::Engine& engine, const std::vector<int32_t>& ids, const RowSink& row) {
  return engine.score(ids, [&](int first, const TensorView& logits) -> Status {
    if (interrupted())
      return make_error(ErrorCode::kCancelled, "interrupted at token {} of {}", first, ids.size());
    const auto logits_of = [&](int64_t i) {
      return std::span<const float>(logits.row<float>(i), static_cast<size_t>(logits.dim(1)));
    };
    std::vector<double> next(static_cast<size_t>(logits.dim(0)), 0.0);
    parallel_ranges(engine.num_threads(), logits.dim(0), 8, [&](Range rows) {
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        const auto at = static_cast<size_t>(first + i + 1);
        if (at < ids.size()) next[static_cast<size_t>(i)] = log_probability(logits_of(i), ids[at]);
      }
    });
    for (int64_t i = 0; i < logits.dim(0); ++i)
      row(first + static_cast<int>(i), logits_of(i), next[static_cast<size_t>(i)]);
    return {};
  });
}

}  // namespace latent::cli
