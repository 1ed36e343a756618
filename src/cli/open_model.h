// SPDX-License-Identifier: Apache-2.0
// From flags to an engine that is ready: progress on stderr, what the loader had to say in the log.
#pragma once

#include <memory>

#include "cli/exit_code.h"
#include "cli/flags.h"

namespace latent::cli {

struct OpenModel {
  std::unique_ptr<text::Tokenizer> tokenizer;  // null: the folder has none
  std::unique_ptr<runtime::Engine> engine;     // uses the tokenizer
  double load_seconds = 0;
};

// What the engine is for: text needs the logits of a prompt's last token, scoring those of every token.
enum class Purpose { kText, kScoring };
Result<OpenModel> open_model(const EngineFlags& flags, Purpose purpose = Purpose::kText);

// The weights alone.
Result<model::LoadedModel> load_weights(const EngineFlags& flags);

// The tokenizer of the folder; null if it has none.
Result<std::unique_ptr<text::Tokenizer>> open_tokenizer(const std::string& folder);

// The context limit to load with: --context, else the model's, at most kDefaultContext.
inline constexpr int kDefaultContext = 32768;
Result<int> context_limit(const model::ModelConfig& config, const EngineFlags& flags);

}  // namespace latent::cli
