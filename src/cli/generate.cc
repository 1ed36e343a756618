// SPDX-License-Identifier: Apache-2.0
#include "cli/generate.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "cli/interrupt.h"

namespace latent::cli {

Answer generate(runtime::Engine& engine, runtime::RequestId id,
                const std::function<Status(const runtime::RequestOutput& delta)>& on_delta) {
  Answer answer;
  Status taken;
  while (answer.finish == runtime::FinishReason::kNone) {
    if (interrupted() || !taken)
      engine.cancel(id);
    else
      engine.step();
    Result<runtime::RequestOutput> delta = engine.poll(id);
    CHECK(delta.ok(), "request {} vanished", id);
    if (taken) taken = on_delta(*delta);
    answer.token_ids.insert(answer.token_ids.end(), delta->token_ids.begin(), delta->token_ids.end());
    answer.text += delta->text;
    answer.logprobs.insert(answer.logprobs.end(), delta->logprobs.begin(), delta->logprobs.end());
    answer.finish = delta->finish;
    answer.error = std::move(delta->error);
    answer.stats = delta->stats;
  }
  if (!taken)
    answer.error = taken.error().with_context(fmt::format("token {} of the answer", answer.token_ids.size()));
  return answer;
}

Status stream_out(std::string_view text) {
  const bool ok = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (ok) return {};
  return make_error(ErrorCode::kIo, "stdout takes no more ({})", std::strerror(errno));
}

}  // namespace latent::cli
