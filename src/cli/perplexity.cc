// SPDX-License-Identifier: Apache-2.0
// latent perplexity: how well the model predicts a text.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/json_file.h"
#include "cli/progress.h"
#include "cli/scoring.h"
#include "io/json_text.h"

namespace latent::cli {
namespace {

constexpr int64_t kMaxTextBytes = int64_t{1} << 30;
constexpr int kDefaultWindow = 1024;

struct PerplexityFlags {
  EngineFlags engine;
  std::string text;
  int window = 0;
  bool json = false;
};

struct Totals {
  double nats = 0;
  int64_t tokens = 0;  // scored
  int64_t bytes = 0;   // of the scored tokens

  double perplexity() const { return std::exp(nats / static_cast<double>(tokens)); }
  double bits_per_byte() const { return nats / std::log(2.0) / static_cast<double>(bytes); }
};

// Scores ids[first_scored, …) of one window and adds them up.
Status add_window(OpenModel& open, const std::vector<int32_t>& ids, Totals& totals) {
  return score_rows(*open.engine, ids, [&](int position, std::span<const float>, double next_logprob) {
    const size_t next = static_cast<size_t>(position) + 1;
    if (next >= ids.size()) return;
    totals.nats -= next_logprob;
    totals.bytes += static_cast<int64_t>(open.tokenizer->token_bytes(ids[next]).size());
    ++totals.tokens;
  });
}

Result<Totals> measure(OpenModel& open, const std::string& text, int window) {
  const Result<std::vector<int32_t>> encoded = open.tokenizer->encode(text, text::SpecialTokens::kAsText);
  if (!encoded) return encoded.error();
  const std::vector<int32_t>& ids = *encoded;
  const std::optional<int32_t> bos = open.tokenizer->bos_id();
  const size_t num_lead = bos ? 1 : 0, step = static_cast<size_t>(window) - num_lead;
  ProgressBar bar("scoring", false);
  Totals totals;
  for (size_t begin = 0; begin < ids.size(); begin += step) {
    const size_t end = std::min(begin + step, ids.size());
    std::vector<int32_t> window_ids(num_lead + end - begin, bos.value_or(0));
    std::copy(ids.begin() + static_cast<long>(begin), ids.begin() + static_cast<long>(end),
              window_ids.begin() + static_cast<long>(num_lead));
    if (Status s = add_window(open, window_ids, totals); !s)
      return s.error().with_context(fmt::format("the window at token {} of {}", begin, ids.size()));
    bar.update(static_cast<int64_t>(end), static_cast<int64_t>(ids.size()));
  }
  if (bos) totals.bytes = static_cast<int64_t>(text.size());  // every token is scored
  if (totals.tokens == 0)
    return make_error(ErrorCode::kInvalidArgument, "the text is too short: no token can be scored");
  return totals;
}

Result<int> window_tokens(const PerplexityFlags& flags, int context) {
  if (flags.window == 0) return std::min(kDefaultWindow, context);
  if (flags.window >= 2 && flags.window <= context) return flags.window;
  return make_error(ErrorCode::kInvalidArgument, "--window {}; it must be from 2 to the context limit, {}",
                    flags.window, context);
}

int perplexity(const PerplexityFlags& flags) {
  catch_interrupts();
  const Result<std::string> text = io::read_text_file(flags.text, kMaxTextBytes);
  if (!text) return fail(text.error());
  Result<OpenModel> open = open_model(flags.engine, Purpose::kScoring);
  if (!open) return fail(open.error());
  if (open->tokenizer == nullptr)
    return fail(make_error(ErrorCode::kInvalidArgument,
                           "{} has no tokenizer; score --token-ids works without", flags.engine.model));
  const Result<int> window = window_tokens(flags, open->engine->limits().context_tokens);
  if (!window) return fail(window.error());
  const Result<Totals> totals = measure(*open, *text, *window);
  if (!totals) return fail(totals.error());
  if (flags.json) {
    const Status s = write_json("-", {{"perplexity", totals->perplexity()},
                                      {"bits_per_byte", totals->bits_per_byte()},
                                      {"tokens", totals->tokens},
                                      {"bytes", totals->bytes},
                                      {"window", *window}});
    if (!s) return fail(s.error());
  } else {
    fmt::print(
        "perplexity     {:.4f}\nbits per byte  {:.4f}\ntokens         {}\nbytes          {}\nwindow         "
        "{}\n",
        totals->perplexity(), totals->bits_per_byte(), totals->tokens, totals->bytes, *window);
  }
  return kOk;
}

}  // namespace

void add_perplexity(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("perplexity", "How well the model predicts a text, in perplexity and bits per byte");
  auto flags = std::make_shared<PerplexityFlags>();
  add_engine_flags(*command, flags->engine);
  command->add_option("--text", flags->text, "File of text")->required();
  command->add_option("--window", flags->window,
                      "Tokens of a window, BOS included; 0: 1024, or the context limit if that is smaller");
  command->add_flag("--json", flags->json, "Print {perplexity, bits_per_byte, tokens, bytes, window}");
  command->footer(
      "The text is encoded whole, without special tokens, and cut into windows of BOS and window - 1 tokens, "
      "one after "
      "another, the last one shorter. In each window every token but BOS is scored. perplexity = exp(nats / "
      "tokens), "
      "bits per byte = nats / ln 2 / bytes. Without a BOS token the first token of a window is not scored "
      "and its bytes "
      "are not counted.");
  command->callback([flags, &action] { action = [flags] { return perplexity(*flags); }; });
}

}  // namespace latent::cli
