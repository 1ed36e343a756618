// SPDX-License-Identifier: Apache-2.0
#include "cli/open_model.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/log.h"
#include "base/parallel.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "io/safetensors.h"

namespace latent::cli {
namespace {

void log_report(const model::LoadReport& report) {
  for (const int layer : report.skipped_layers)
    log(LogLevel::kInfo, "layer {} of the checkpoint (multi-token prediction) is not used", layer);
  if (!report.unknown_tensors.empty())
    log(LogLevel::kWarn,
        "{} tensors of the checkpoint are not used by the model that config.json describes: {}",
        report.unknown_tensors.size(), io::list_some(report.unknown_tensors));
  for (const std::string& name : report.stale_tensors)
    log(LogLevel::kInfo, "{} is in the folder but not in the index", name);
}

// Rows of logits that a scoring step computes at once: as many as fit a 32nd of the weights, but 8 to 64 MiB.
int scoring_rows(const model::LoadedModel& model, int prefill_chunk) {
  const int64_t bytes = std::clamp<int64_t>(model.report.bytes / 32, 8 << 20, 64 << 20);
  const int64_t row_bytes = model.config.vocab * static_cast<int64_t>(sizeof(float));
  return static_cast<int>(std::clamp<int64_t>(bytes / row_bytes, 1, std::max(prefill_chunk, 1)));
}

}  // namespace

Result<int> context_limit(const model::ModelConfig& config, const EngineFlags& flags) {
  if (flags.context < 0)
    return make_error(ErrorCode::kInvalidArgument, "--context {}; it must be a number of tokens, or 0",
                      flags.context);
  const int wanted =
      flags.context > 0 ? flags.context : std::min(model::default_context(config), kDefaultContext);
  return model::served_context(config, wanted);
}

Result<model::LoadedModel> load_weights(const EngineFlags& flags) {
  const Result<model::ModelConfig> config = model::load_config(flags.model);
  if (!config) return model_error(config.error());
  const Result<int> context = context_limit(*config, flags);
  if (!context) return context.error();
  ProgressBar bar("loading", true);
  model::LoadOptions options;
  options.max_positions = *context;
  options.compute = compute_dtype(flags);
  options.num_threads = flags.threads > 0 ? flags.threads : available_cores();
  options.progress = [&](int64_t done, int64_t total) {
    bar.update(done, total);
    return !interrupted();
  };
  log(LogLevel::kDebug, "loading {}", flags.model);
  Result<model::LoadedModel> model = model::load_model(flags.model, options);
  if (!model) return model_error(model.error());
  log_report(model->report);
  return model;
}

Result<std::unique_ptr<text::Tokenizer>> open_tokenizer(const std::string& folder) {
  const std::filesystem::path path(folder);
  if (!std::filesystem::exists(path / "tokenizer.json") && !std::filesystem::exists(path / "tiktoken.model"))
    return std::unique_ptr<text::Tokenizer>();
  return text::Tokenizer::load(path);
}

Result<OpenModel> open_model(const EngineFlags& flags, Purpose purpose) {
  const auto start = std::chrono::steady_clock::now();
  Result<runtime::EngineOptions> options = engine_options(flags);
  if (!options) return options.error();
  Result<std::unique_ptr<text::Tokenizer>> tokenizer = open_tokenizer(flags.model);
  if (!tokenizer) return model_error(tokenizer.error());
  Result<model::LoadedModel> model = load_weights(flags);
  if (!model) return model.error();
  if (purpose == Purpose::kScoring) options->max_output_rows = scoring_rows(*model, flags.prefill_chunk);
  OpenModel open;
  open.tokenizer = *std::move(tokenizer);
  Result<std::unique_ptr<runtime::Engine>> engine =
      runtime::Engine::create(*std::move(model), open.tokenizer.get(), *options);
  if (!engine) return engine.error();
  if (interrupted()) return make_error(ErrorCode::kCancelled, "interrupted when the weights were loaded");
  open.engine = *std::move(engine);
  open.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return open;
}

}  // namespace latent::cli
