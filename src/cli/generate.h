// SPDX-License-Identifier: Apache-2.0
// One answer, from submit to the last token, with Ctrl-C in between.
#pragma once

#include <functional>

#include "runtime/engine.h"

namespace latent::cli {

struct Answer {
  std::vector<int32_t> token_ids;
  std::string text;
  std::vector<runtime::LogprobRow> logprobs;
  runtime::FinishReason finish = runtime::FinishReason::kNone;
  std::optional<Error> error;
  runtime::RequestStats stats;
};

// Steps until the request has ended or Ctrl-C cancels it. `on_delta` is given what is new, as it comes.
Answer generate(runtime::Engine& engine, runtime::RequestId id,
                const std::function<void(const runtime::RequestOutput& delta)>& on_delta);

}  // namespace latent::cli
