// SPDX-License-Identifier: Apache-2.0
// One answer, from submit to the last token, with Ctrl-C in between.
#pragma once

#include <functional>
#include <string_view>

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

// Steps until the request has ended or Ctrl-C cancels it. `on_delta` is given what is new, as it comes; an
// error that it returns cancels the request and is the answer's.
Answer generate(runtime::Engine& engine, runtime::RequestId id,
                const std::function<Status(const runtime::RequestOutput& delta)>& on_delta);

// Writes the next part of an answer to stdout at once; an error says why it was not taken.
Status stream_out(std::string_view text);

}  // namespace latent::cli
