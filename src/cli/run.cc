// SPDX-License-Identifier: Apache-2.0
// latent run: text from a model.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/chat.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/generate.h"
#include "cli/interrupt.h"
#include "cli/json_file.h"
#include "cli/open_model.h"
#include "cli/timings.h"
#include "io/json_text.h"

namespace latent::cli {
namespace {

struct RunFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  std::optional<std::string> prompt;
  std::string file;
  std::string token_ids;
  bool chat = false;
  std::string system;
  bool json = false;
  bool timings = false;
};

constexpr int64_t kMaxPromptBytes = int64_t{256} << 20;

// What is to be continued: text, or ids.
struct Prompt {
  std::optional<std::string> text;
  std::vector<int32_t> ids;
};

Result<Prompt> read_prompt(const RunFlags& flags) {
  if (!flags.token_ids.empty()) {
    Result<std::vector<int32_t>> ids = read_token_ids(flags.token_ids);
    if (!ids) return ids.error();
    return Prompt{.text = {}, .ids = *std::move(ids)};
  }
  if (flags.prompt) return Prompt{.text = *flags.prompt, .ids = {}};
  if (!flags.file.empty()) {
    Result<std::string> text = io::read_text_file(flags.file, kMaxPromptBytes);
    if (!text) return text.error();
    return Prompt{.text = *std::move(text), .ids = {}};
  }
  if (isatty(STDIN_FILENO))
    return make_error(ErrorCode::kInvalidArgument,
                      "nothing to continue: give --prompt, -f, --token-ids or text on stdin");
  return Prompt{.text = std::string(std::istreambuf_iterator<char>(std::cin), {}), .ids = {}};
}

Result<std::vector<int32_t>> encode(const Prompt& prompt, const RunFlags& flags, const OpenModel& open) {
  if (!prompt.text) return prompt.ids;
  if (open.tokenizer == nullptr)
    return make_error(ErrorCode::kInvalidArgument, "{} has no tokenizer; give the prompt as --token-ids",
                      flags.engine.model);
  if (!flags.chat) return open.tokenizer->encode_prompt(*prompt.text);
  Result<Chat> chat = Chat::open(flags.engine.model, *open.tokenizer);
  if (!chat) return chat.error();
  if (!flags.system.empty()) chat->add("system", flags.system);
  chat->add("user", *prompt.text);
  return chat->encode();
}

// A model without a tokenizer answers in ids, one space between them.
Status print_delta(const runtime::RequestOutput& delta, bool has_text) {
  std::string text = has_text ? delta.text : "";
  if (!has_text)
    for (const int32_t id : delta.token_ids)
      text += fmt::format("{}{}", delta.stats.generated_tokens > 1 ? " " : "", id);
  return stream_out(text);
}

nlohmann::json logprob_json(const std::vector<runtime::LogprobRow>& rows) {
  nlohmann::json list = nlohmann::json::array();
  for (const runtime::LogprobRow& row : rows) {
    nlohmann::json best = nlohmann::json::array();
    for (const runtime::TokenLogprob& t : row.best) best.push_back({{"id", t.id}, {"logprob", t.logprob}});
    list.push_back({{"id", row.chosen.id}, {"logprob", row.chosen.logprob}, {"best", std::move(best)}});
  }
  return list;
}

nlohmann::json answer_json(const Answer& answer, bool has_text, const SamplingFlags& sampling,
                           const Timings& timings) {
  nlohmann::json json = {{"text", nullptr},
                         {"token_ids", answer.token_ids},
                         {"finish_reason", to_string(answer.finish)},
                         {"usage",
                          {{"prompt_tokens", answer.stats.prompt_tokens},
                           {"completion_tokens", answer.stats.generated_tokens},
                           {"total_tokens", answer.stats.prompt_tokens + answer.stats.generated_tokens}}},
                         {"timings", timings_json(timings)}};
  if (has_text) json["text"] = answer.text;
  if (sampling.logprobs >= 0) json["logprobs"] = logprob_json(answer.logprobs);
  if (answer.error)
    json["error"] = {{"code", error_code_name(answer.error->code)}, {"message", answer.error->message}};
  return json;
}

int exit_code_of(const Answer& answer) {
  if (answer.error) return fail(*answer.error);
  return answer.finish == runtime::FinishReason::kCancelled ? kCancelled : kOk;
}

int answer_once(const RunFlags& flags, OpenModel& open, runtime::Request request) {
  std::optional<CeilingProbe> probe;
  if (flags.timings) probe.emplace(*open.engine);
  const bool has_text = open.tokenizer != nullptr;
  const Result<runtime::RequestId> id = open.engine->submit(std::move(request));
  if (!id) return fail(id.error());
  Answer answer = generate(*open.engine, *id, [&](const runtime::RequestOutput& delta) {
    return flags.json ? Status() : print_delta(delta, has_text);
  });
  Timings timings{.load_seconds = open.load_seconds,
                  .stats = answer.stats,
                  .bytes_per_token = bytes_per_token(*open.engine, answer.stats),
                  .memory = memory_use(*open.engine)};
  if (probe) timings.ceiling = probe->finish();
  if (flags.json) {
    if (const Status s = write_json("-", answer_json(answer, has_text, flags.sampling, timings)); !s)
      return fail(s.error());
  } else if (const Status ended = stream_out("\n"); !ended && !answer.error) {
    answer.error = ended.error();
  }
  if (!flags.json || flags.timings) print_timings(timings);
  return exit_code_of(answer);
}

int run(const RunFlags& flags) {
  const bool interactive = flags.chat && !flags.prompt && flags.file.empty() && isatty(STDIN_FILENO);
  if (flags.chat && !flags.token_ids.empty())
    return fail(make_error(ErrorCode::kInvalidArgument,
                           "--chat makes a conversation of text; --token-ids are not text"));
  Prompt prompt;
  if (!interactive) {
    Result<Prompt> read = read_prompt(flags);
    if (!read) return fail(read.error());
    prompt = *std::move(read);
  }
  catch_interrupts();
  Result<OpenModel> open = open_model(flags.engine);
  if (!open) return fail(open.error());
  Result<runtime::Request> request = make_request(flags.sampling, flags.engine.model);
  if (!request) return fail(request.error());
  if (interactive) return converse(*open, flags.engine.model, flags.system, *request);
  Result<std::vector<int32_t>> ids = encode(prompt, flags, *open);
  if (!ids) return fail(ids.error());
  request->prompt = *std::move(ids);
  return answer_once(flags, *open, *std::move(request));
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("run", "Generate text, streamed to stdout");
  auto flags = std::make_shared<RunFlags>();
  add_engine_flags(*command, flags->engine);
  CLI::Option* prompt =
      command->add_option("-p,--prompt", flags->prompt, "Text to continue; special tokens in it count");
  CLI::Option* file = command->add_option("-f,--file", flags->file, "File with the text to continue");
  CLI::Option* ids =
      command->add_option("--token-ids", flags->token_ids, "JSON list of token ids to continue, as they are");
  prompt->excludes(file)->excludes(ids);
  file->excludes(ids);
  CLI::Option* chat = command->add_flag(
      "--chat", flags->chat,
      "Take the text as a user's message, by the model's chat template; on a terminal without --prompt "
      "or -f, a conversation");
  command->add_option("--system", flags->system, "With --chat: the system message")->needs(chat);
  add_sampling_flags(*command, flags->sampling);
  CLI::Option* json =
      command->add_flag("--json", flags->json, "Print one JSON object at the end instead of streaming");
  command->get_option("--logprobs")->needs(json);
  command->add_flag(
      "--timings", flags->timings,
      "Measure the machine's memory bandwidth too (0.3 s) and say which share of it was reached");
  command->footer(
      "Without --prompt, -f and --token-ids the text is read from stdin. Ctrl-C ends the answer and prints "
      "what there is; twice, it ends the program.");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace latent::cli
