// SPDX-License-Identifier: Apache-2.0
// What score and perplexity share: rows of logits to log-probabilities.
#pragma once

#include <functional>
#include <vector>

#include "cli/open_model.h"

namespace latent::cli {

// log softmax(logits)[id], natural, in double.
double log_probability(std::span<const float> logits, int32_t id);

// Runs the ids through the model; calls row for every position in order, with the log-probability of the id
// that follows (0 at the last). Ctrl-C: kCancelled.
using RowSink = std::function<void(int position, std::span<const float> logits, double next_logprob)>;
Status score_rows(runtime::Engine& engine, const std::vector<int32_t>& ids, const RowSink& row);

}  // namespace latent::cli
