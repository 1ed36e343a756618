// SPDX-License-Identifier: Apache-2.0
// latent bench model: prefill and decode speed over context lengths, beside a plain read of the same weights.
#include "cli/bench_model.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "base/log.h"
#include "base/parallel.h"
#include "cli/bench_report.h"
#include "cli/ceilings.h"
#include "cli/exit_code.h"
#include "cli/gemm_ceiling.h"
#include "cli/interrupt.h"
#include "cli/json_file.h"
#include "cli/open_model.h"
#include "cli/progress.h"
#include "cli/shapes.h"
#include "cli/summary.h"
#include "cli/timings.h"
#include "cli/traffic.h"
#include "model/build_graph.h"

namespace latent::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxReadBytes = size_t{2} << 30;
constexpr int kDefaultContexts[] = {512, 2048};
constexpr int kGemmRows = 512;
constexpr double kFirstReads = 0.5;  // seconds for choosing the best read loop

struct BenchFlags {
  EngineFlags engine;
  ShapeFlags shape;
  std::string dtype = "bf16";
  std::vector<int> contexts;  // empty: kDefaultContexts, as far as the model goes
  int decode_tokens = 16;
  int rounds = 3;
  bool json = false;
};

struct BenchRow {
  int context = 0;
  double prefill_seconds = 0;  // medians
  double decode_seconds = 0;   // of one token
  double read_bytes_per_second = 0;
  int64_t bytes_per_token = 0;
  double prefill_flops = 0;  // of all prompt tokens

  double prefill_flops_per_second() const { return prefill_flops / prefill_seconds; }
  double decode_bytes_per_second() const { return static_cast<double>(bytes_per_token) / decode_seconds; }
  double share() const { return decode_bytes_per_second() / read_bytes_per_second; }
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The context limit that a prompt of this length needs.
int context_for(int prompt, const BenchFlags& flags) { return prompt + flags.decode_tokens + 1; }

// The prompt lengths to time: those asked for, or the default ones cut to what the model can take.
Result<std::vector<int>> choose_contexts(const BenchFlags& flags, const model::ModelConfig& config) {
  const int longest = config.max_positions - context_for(0, flags);
  std::vector<int> contexts = flags.contexts;
  if (contexts.empty())
    for (const int context : kDefaultContexts)
      if (const int fitting = std::min(context, std::max(longest, 1));
          contexts.empty() || contexts.back() < fitting)
        contexts.push_back(fitting);
  for (const int context : contexts)
    if (context < 1 || context > longest)
      return make_error(
          ErrorCode::kInvalidArgument,
          "--contexts {} and --decode-tokens {}; {} has {} positions, so a prompt may have 1 to {} tokens",
          context, flags.decode_tokens, config.architecture_name, config.max_positions, std::max(longest, 0));
  return contexts;
}

Result<model::LoadedModel> make_model(const BenchFlags& flags, const model::ModelConfig& shape, int longest) {
  const int context = context_for(longest, flags);
  EngineFlags engine = flags.engine;
  engine.context = context;
  if (!engine.model.empty()) return load_weights(engine);
  const std::map<std::string, DType> types = {
      {"bf16", DType::kBF16}, {"fp32", DType::kF32}, {"fp16", DType::kF16}, {"fp8", DType::kF8E4M3}};
  ProgressBar bar("drawing weights", true);
  log(LogLevel::kDebug, "drawing weights");
  return model::random_weights(shape, {.dtype = types.at(flags.dtype),
                                       .max_positions = context,
                                       .num_threads = engine.threads > 0 ? engine.threads : available_cores(),
                                       .progress = [&](int64_t done, int64_t total) {
                                         bar.update(done, total);
                                         return !interrupted();
                                       }});
}

std::vector<int32_t> random_ids(int count, int vocab) {
  std::mt19937 rng(7);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(rng() % static_cast<uint32_t>(vocab));
  return ids;
}

// Samples of one context length.
struct Samples {
  std::vector<double> prefill_seconds, decode_seconds, read_rates;
};

// One request: prefill, then every generated token followed by a plain read of the weights.
Status run_round(runtime::Engine& engine, ReadCeiling& ceiling, int context, int decode_tokens,
                 Samples& samples) {
  runtime::Request request;
  request.prompt = random_ids(context, engine.limits().vocab);
  request.max_tokens = decode_tokens + 1;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  const Result<runtime::RequestId> id = engine.submit(std::move(request));
  if (!id) return id.error();
  for (;;) {
    if (interrupted()) engine.cancel(*id);
    const Clock::time_point start = Clock::now();
    engine.step();
    const std::chrono::duration<double> seconds = Clock::now() - start;
    const Result<runtime::RequestOutput> output = engine.poll(*id);
    if (output->error) return *output->error;
    if (output->finish == runtime::FinishReason::kCancelled)
      return make_error(ErrorCode::kCancelled, "interrupted");
    if (output->stats.generated_tokens == 1) samples.prefill_seconds.push_back(output->stats.prefill_seconds);
    if (output->stats.generated_tokens > 1) {
      samples.decode_seconds.push_back(seconds.count());
      samples.read_rates.push_back(ceiling.measure_best());
    }
    if (output->finish != runtime::FinishReason::kNone) return {};
  }
}

// Products of matrices and attention of a prompt: what any engine must compute, nothing done twice.
Result<double> prefill_flops(const runtime::Engine& engine, int context) {
  const model::ModelConfig& c = engine.model().config;
  const graph::Graph graph = model::build_graph(c, {.types = model::weight_types(engine.model().weights),
                                                    .activation = engine.model().activation,
                                                    .kv = model::kv_layout(c, DType::kBF16),
                                                    .max_positions = engine.model().max_positions});
  const Result<ModelSummary> summary = summarise(c, graph);
  if (!summary) return summary.error();
  const double tokens = context, pairs = tokens * (tokens + 1) / 2;
  const double attention = pairs * c.num_heads * (c.qk_dim() + c.v_dim) * c.num_layers;
  return 2 * (tokens * static_cast<double>(summary->matrix_parameters) + attention +
              double{1} * c.hidden * c.vocab);
}

Result<BenchRow> measure(runtime::Engine& engine, ReadCeiling& ceiling, int context,
                         const BenchFlags& flags) {
  Samples samples;
  for (int round = 0; round < flags.rounds; ++round)
    if (Status s = run_round(engine, ceiling, context, flags.decode_tokens, samples); !s) return s.error();
  const Result<double> flops = prefill_flops(engine, context);
  if (!flops) return flops.error();
  const int64_t weights = decode_weight_bytes(engine.decode().graph(), engine.model().weights);
  const int64_t cache = (context + flags.decode_tokens / 2) * engine.limits().cache_token_bytes;
  return BenchRow{.context = context,
                  .prefill_seconds = median(samples.prefill_seconds),
                  .decode_seconds = median(samples.decode_seconds),
                  .read_bytes_per_second = median(samples.read_rates),
                  .bytes_per_token = weights + cache,
                  .prefill_flops = *flops};
}

nlohmann::json row_json(const BenchRow& row) {
  return {{"context", row.context},
          {"prefill_s", row.prefill_seconds},
          {"prefill_tokens_per_s", row.context / row.prefill_seconds},
          {"prefill_flops_per_s", row.prefill_flops_per_second()},
          {"decode_ms_per_token", row.decode_seconds * 1e3},
          {"decode_tokens_per_s", 1 / row.decode_seconds},
          {"bytes_per_token", row.bytes_per_token},
          {"decode_bytes_per_s", row.decode_bytes_per_second()},
          {"read_bytes_per_s", row.read_bytes_per_second},
          {"share", row.share()}};
}

struct Ceilings {
  const ReadCeiling& read;
  std::optional<GemmCeiling> gemm;  // without it prefill has no share
};

void print_rows(const std::vector<BenchRow>& rows, const Ceilings& ceilings, const MemoryUse& memory) {
  fmt::print("{:>8} {:>14} {:>8} {:>7} {:>13} {:>11} {:>12} {:>10} {:>7}\n", "context", "prefill tok/s",
             "GFLOP/s", "share", "decode tok/s", "MiB/token", "decode GB/s", "read GB/s", "share");
  for (const BenchRow& r : rows) {
    const double gflops = r.prefill_flops_per_second() * 1e-9;
    const std::string share =
        ceilings.gemm ? fmt::format("{:.1f}%", 1e11 * gflops / ceilings.gemm->flops_per_second) : "-";
    fmt::print("{:>8} {:>14.1f} {:>8.1f} {:>7} {:>13.2f} {:>11.1f} {:>12.2f} {:>10.2f} {:>6.1f}%\n",
               r.context, r.context / r.prefill_seconds, gflops, share, 1 / r.decode_seconds,
               static_cast<double>(r.bytes_per_token) / (1 << 20), r.decode_bytes_per_second() * 1e-9,
               r.read_bytes_per_second * 1e-9, 100 * r.share());
  }
  fmt::print(
      "\nread: {:.0f} MiB of the weights, once after each token, median; best loop of {}: {}; best pass "
      "{:.2f} GB/s\n",
      static_cast<double>(ceilings.read.num_bytes()) / (1 << 20), ceilings.read.num_forms(),
      ceilings.read.best_form(), ceilings.read.best_bytes_per_second() * 1e-9);
  if (ceilings.gemm)
    fmt::print("prefill: share of oneDNN's best product of {} shapes in the run, {:.1f} GFLOP/s at {}\n",
               ceilings.gemm->num_forms, ceilings.gemm->flops_per_second * 1e-9, ceilings.gemm->form);
  fmt::print("{}\n", memory_text(memory));
}

Status print_json(const std::vector<BenchRow>& rows, const Ceilings& ceilings, const MemoryUse& memory) {
  nlohmann::json list = nlohmann::json::array();
  for (const BenchRow& row : rows) list.push_back(row_json(row));
  nlohmann::json bounds = {{"read_bytes_per_s", ceilings.read.best_bytes_per_second()},
                           {"read_form", ceilings.read.best_form()},
                           {"read_forms", ceilings.read.num_forms()},
                           {"read_bytes", ceilings.read.num_bytes()}};
  if (ceilings.gemm) {
    bounds["gemm_flops_per_s"] = ceilings.gemm->flops_per_second;
    bounds["gemm_form"] = ceilings.gemm->form;
    bounds["gemm_forms"] = ceilings.gemm->num_forms;
    for (size_t i = 0; i < rows.size(); ++i)
      list[i]["prefill_share"] = rows[i].prefill_flops_per_second() / ceilings.gemm->flops_per_second;
  }
  nlohmann::json report = bench_envelope("model", command_line(), std::move(bounds), std::move(list));
  report["memory_bytes"] = memory_json(memory);
  return write_json("-", report);
}

int bench_model(const BenchFlags& flags) {
  catch_interrupts();
  const Result<runtime::EngineOptions> options = engine_options(flags.engine);
  if (!options) return fail(options.error());
  const Result<model::ModelConfig> config = chosen_config(flags.engine.model, flags.shape);
  if (!config) return fail(config.error());
  const Result<std::vector<int>> contexts = choose_contexts(flags, *config);
  if (!contexts) return fail(contexts.error());
  Result<model::LoadedModel> model =
      make_model(flags, *config, *std::max_element(contexts->begin(), contexts->end()));
  if (!model) return fail(model.error());
  Result<std::unique_ptr<runtime::Engine>> engine =
      runtime::Engine::create(*std::move(model), nullptr, *options);
  if (!engine) return fail(engine.error());
  ReadCeiling ceiling(weight_regions((*engine)->decode().graph(), (*engine)->model().weights), kMaxReadBytes,
                      (*engine)->num_threads());
  ceiling.measure_for(kFirstReads);
  std::vector<BenchRow> rows;
  for (const int context : *contexts) {
    const Result<BenchRow> row = measure(**engine, ceiling, context, flags);
    if (!row) return fail(row.error());
    rows.push_back(*row);
  }
  const MemoryUse memory = memory_use(**engine);  // before oneDNN's products take theirs
  Ceilings ceilings{ceiling, {}};
  for (int round = 0; round < flags.rounds; ++round)
    ceilings.gemm = best_of(ceilings.gemm, measure_gemm_ceiling(kGemmRows, (*engine)->model().activation,
                                                                (*engine)->num_threads()));
  if (flags.json) {
    if (const Status s = print_json(rows, ceilings, memory); !s) return fail(s.error());
  } else {
    print_rows(rows, ceilings, memory);
  }
  for (const BenchRow& row : rows)
    if (row.share() > 1 ||
        (ceilings.gemm && row.prefill_flops_per_second() > ceilings.gemm->flops_per_second))
      return fail(make_error(ErrorCode::kExhausted,
                             "a share above 100 % at context {}: the loops of the bound did not reach it",
                             row.context));
  return kOk;
}

}  // namespace

void add_bench_model(CLI::App& bench, Action& action) {
  CLI::App* command = bench.add_subcommand("model", "Prefill and decode speed over context lengths");
  auto flags = std::make_shared<BenchFlags>();
  add_model_or_shape(*command, flags->engine, flags->shape);
  command->add_option("--dtype", flags->dtype, "With --shape: type of the random weights")
      ->check(CLI::IsMember({"bf16", "fp32", "fp16", "fp8"}))
      ->capture_default_str()
      ->needs(command->get_option("--shape"));
  command
      ->add_option("--contexts", flags->contexts,
                   "Prompt lengths, like 512,2048; left out: these two, as far as the model's context goes")
      ->delimiter(',');
  command->add_option("--decode-tokens", flags->decode_tokens, "Generated tokens timed at each context")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command->add_option("--rounds", flags->rounds, "Repetitions; medians are reported")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--json", flags->json,
                    "Print {schema, commit, device, date, command, ceilings, rows, memory_bytes}");
  command->footer(
      "The share is decode bytes a second over a plain read of the same weights that follows each token, so "
      "both see the same state of the machine.");
  command->callback([flags, &action] { action = [flags] { return bench_model(*flags); }; });
}

}  // namespace latent::cli
