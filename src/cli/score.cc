// SPDX-License-Identifier: Apache-2.0
// latent score: what the model makes of every token of a text.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/json_file.h"
#include "cli/scoring.h"
#include "io/json_text.h"
#include "io/safetensors.h"
#include "tensor/tensor.h"

namespace latent::cli {
namespace {

constexpr int64_t kMaxTextBytes = int64_t{1} << 30;

// LATENT_JSON is a switch of other commands: 1 is stdout, 0 the table.
std::string json_path(const std::string& text) { return text == "1" ? "-" : text == "0" ? "" : text; }

struct ScoreFlags {
  EngineFlags engine;
  std::string text;
  std::string token_ids;
  int top = 0;
  std::string json;
  std::string logits;
};

// One position: the probability of the next token and the best ones instead.
struct ScoredRow {
  double next_logprob = 0;  // of the last position: nothing
  std::vector<runtime::TokenLogprob> best;
};

Result<std::vector<int32_t>> read_ids(const ScoreFlags& flags, const text::Tokenizer* tokenizer) {
  if (!flags.token_ids.empty()) return read_token_ids(flags.token_ids);
  if (tokenizer == nullptr)
    return make_error(ErrorCode::kInvalidArgument, "{} has no tokenizer; give --token-ids",
                      flags.engine.model);
  const Result<std::string> text = io::read_text_file(flags.text, kMaxTextBytes);
  if (!text) return text.error();
  return tokenizer->encode_prompt(*text);
}

std::string quoted(const text::Tokenizer* tokenizer, int32_t id) {
  if (tokenizer == nullptr) return "";
  return nlohmann::json(std::string(tokenizer->token_bytes(id)))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void print_table(const std::vector<int32_t>& ids, const std::vector<ScoredRow>& rows,
                 const text::Tokenizer* tokenizer) {
  fmt::print("{:>8} {:>8} {:>10}  token\n", "position", "id", "logprob");
  double total = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string logprob = i == 0 ? "" : fmt::format("{:.4f}", rows[i - 1].next_logprob);
    if (i > 0) total += rows[i - 1].next_logprob;
    fmt::print("{:>8} {:>8} {:>10}  {}\n", i, ids[i], logprob, quoted(tokenizer, ids[i]));
    if (i == 0) continue;
    for (const runtime::TokenLogprob& t : rows[i - 1].best)
      fmt::print("{:>8} {:>8} {:>10.4f}  {}\n", "", t.id, t.logprob, quoted(tokenizer, t.id));
  }
  fmt::print("total {:.4f} over {} tokens\n", total, ids.size() - 1);
}

nlohmann::json score_json(const std::vector<int32_t>& ids, const std::vector<ScoredRow>& rows,
                          bool with_best) {
  nlohmann::json logprobs = nlohmann::json::array({nullptr}), best = nlohmann::json::array();
  double total = 0;
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    logprobs.push_back(rows[i].next_logprob);
    total += rows[i].next_logprob;
  }
  for (const ScoredRow& row : rows) {
    nlohmann::json list = nlohmann::json::array();
    for (const runtime::TokenLogprob& t : row.best) list.push_back({{"id", t.id}, {"logprob", t.logprob}});
    best.push_back(std::move(list));
  }
  nlohmann::json json = {{"token_ids", ids}, {"logprobs", std::move(logprobs)}, {"total_logprob", total}};
  if (with_best) json["top"] = std::move(best);
  return json;
}

Status write_logits(const std::string& path, const Tensor& logits) {
  const io::NamedView view{.name = "logits", .view = logits.view()};
  return io::write_safetensors(path, std::span(&view, 1));
}

int score(const ScoreFlags& flags) {
  catch_interrupts();
  Result<OpenModel> open = open_model(flags.engine, Purpose::kScoring);
  if (!open) return fail(open.error());
  const Result<std::vector<int32_t>> ids = read_ids(flags, open->tokenizer.get());
  if (!ids) return fail(ids.error());

  const int vocab = open->engine->limits().vocab;
  Tensor logits;
  if (!flags.logits.empty()) {
    Result<Tensor> memory = Tensor::create(DType::kF32, {static_cast<int64_t>(ids->size()), vocab});
    if (!memory) return fail(memory.error().with_context("the logits to write"));
    logits = *std::move(memory);
  }
  runtime::Sampler sampler(vocab);
  std::vector<ScoredRow> rows;
  const Status status =
      score_rows(*open->engine, *ids, [&](int position, std::span<const float> row, double next_logprob) {
        ScoredRow scored;
        if (static_cast<size_t>(position) + 1 < ids->size()) scored.next_logprob = next_logprob;
        if (flags.top > 0) scored.best = sampler.logprobs(row, 0, flags.top).best;
        rows.push_back(std::move(scored));
        if (!flags.logits.empty())
          std::memcpy(logits.view().row<float>(position), row.data(), row.size_bytes());
      });
  if (!status) return fail(status.error());
  if (!flags.logits.empty())
    if (const Status s = write_logits(flags.logits, logits); !s) return fail(s.error());
  if (!flags.json.empty()) {
    if (const Status s = write_json(flags.json, score_json(*ids, rows, flags.top > 0)); !s)
      return fail(s.error());
  } else if (flags.logits.empty()) {
    print_table(*ids, rows, open->tokenizer.get());
  }
  return kOk;
}

}  // namespace

void add_score(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("score", "Log-probability of every token of a text");
  auto flags = std::make_shared<ScoreFlags>();
  add_engine_flags(*command, flags->engine);
  CLI::Option_group* input = command->add_option_group("Input", "what to score, one of");
  input->add_option("--text", flags->text,
                    "File of text; the tokenizer's BOS goes in front, as for a prompt");
  input->add_option("--token-ids", flags->token_ids, "File with a JSON list of token ids, taken as they are");
  input->require_option(1);
  command->add_option("--top", flags->top, "The best tokens at each position, too")
      ->check(CLI::Range(0, 1 << 20));
  CLI::Option* json = command->add_option(
      "--json", flags->json,
      "Write {token_ids, logprobs, total_logprob, top} here, - or 1 for stdout, instead of the table. "
      "logprobs[i] is of token i after those before it, null for the first; top[i] lists the best "
      "tokens after token i");
  json->transform(json_path);
  command->add_option("--logits", flags->logits,
                      "Write the fp32 tensor logits [num_tokens, vocab] to this safetensors file");
  command->callback([flags, &action] { action = [flags] { return score(*flags); }; });
}

}  // namespace latent::cli
