// SPDX-License-Identifier: Apache-2.0
#include "cli/scoring.h"

#include <algorithm>
#include <cmath>

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
    for (int64_t i = 0; i < logits.dim(0); ++i)
      row(first + static_cast<int>(i), {logits.row<float>(i), static_cast<size_t>(logits.dim(1))});
    return {};
  });
}

}  // namespace latent::cli
