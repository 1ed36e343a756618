// SPDX-License-Identifier: Apache-2.0
#include "cli/generate.h"

#include "base/check.h"
#include "cli/interrupt.h"

namespace latent::cli {

Answer generate(runtime::Engine& engine, runtime::RequestId id,
                const std::function<void(const runtime::RequestOutput& delta)>& on_delta) {
  Answer answer;
  while (answer.finish == runtime::FinishReason::kNone) {
    if (interrupted())
      engine.cancel(id);
    else
      engine.step();
    Result<runtime::RequestOutput> delta = engine.poll(id);
    CHECK(delta.ok(), "request {} vanished", id);
    on_delta(*delta);
    answer.token_ids.insert(answer.token_ids.end(), delta->token_ids.begin(), delta->token_ids.end());
    answer.text += delta->text;
    answer.logprobs.insert(answer.logprobs.end(), delta->logprobs.begin(), delta->logprobs.end());
    answer.finish = delta->finish;
    answer.error = std::move(delta->error);
    answer.stats = delta->stats;
  }
  return answer;
}

}  // namespace latent::cli
