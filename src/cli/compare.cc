// SPDX-License-Identifier: Apache-2.0
// latent compare: absorbed form, multi-head form and reference side by side on one prompt, error by layer.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "base/log.h"
#include "base/math.h"
#include "base/parallel.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/json_file.h"
#include "cli/open_model.h"
#include "cli/progress.h"
#include "exec/compile.h"
#include "io/json_text.h"
#include "model/build_graph.h"
#include "runtime/batch.h"
#include "tensor/convert.h"

namespace latent::cli {
namespace {

constexpr int kDefaultTokens = 64;
constexpr int kMaxTokens = 4096;
constexpr int64_t kMaxTextBytes = int64_t{64} << 20;

struct CompareFlags {
  EngineFlags engine;
  std::string text;
  std::string token_ids;
  bool json = false;
};

// Every value that is compared, in fp32, by its name in the graph.
using Values = std::map<std::string, std::vector<float>>;

bool is_compared(const std::string& name, int layer) {
  const std::string prefix = fmt::format("layers.{}.", layer);
  return name == prefix + "attention" || name == prefix + "mlp" || name == prefix + "out" || name == "logits";
}

std::vector<float> to_floats(const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.num_elements()));
  CHECK(view.is_contiguous(), "a compared value is contiguous");
  convert_elements(view.raw(), view.dtype(), values.data(), DType::kF32, view.num_elements());
  return values;
}

struct Run {
  const char* name;
  ops::AttentionForm form;
  DType activation;
  exec::ExecOptions exec;
  std::optional<DType> kv_cache;
};

// The whole prompt in one step of a fresh cache; Ctrl-C ends it between two operators.
Result<Values> run_prompt(model::LoadedModel& model, const std::vector<int32_t>& ids, const Run& run,
                          const std::set<std::string>& disabled_passes) {
  const DType cache_type = runtime::cache_dtype(run.activation, {.kv_cache_dtype = run.kv_cache});
  const ops::KvLayout layout = model::kv_layout(model.config, cache_type);
  const int num_tokens = static_cast<int>(ids.size()), num_pages = ceil_div(num_tokens, layout.page_tokens);
  Result<exec::KvCache> cache =
      exec::KvCache::create(layout, model.config.num_layers, num_pages + 1, run.exec.poison);
  if (!cache) return cache.error();
  const exec::StepLimits limits{
      .max_tokens = num_tokens, .max_seqs = 1, .max_outputs = num_tokens, .max_pages = num_pages};
  Result<std::unique_ptr<exec::Executor>> executor = exec::compile(
      model::build_graph(model.config, {.types = model::weight_types(model.weights),
                                        .activation = run.activation,
                                        .kv = layout,
                                        .max_positions = model.max_positions}),
      &model.weights, &*cache,
      {.form = run.form, .disabled_passes = disabled_passes, .limits = limits, .exec = run.exec});
  if (!executor) return executor.error();
  Values values;
  ProgressBar bar(run.name, false);
  (*executor)->set_observer([&](const graph::Node& node, const graph::Value& value, const TensorView& view) {
    if (is_compared(value.name, node.layer)) values[value.name] = to_floats(view);
    if (node.layer != graph::kNoLayer) bar.update(node.layer + 1, model.config.num_layers);
    return !interrupted();
  });
  log(LogLevel::kDebug, "running the {}", run.name);
  std::vector<int32_t> pages(static_cast<size_t>(num_pages));
  std::iota(pages.begin(), pages.end(), 1);
  runtime::Batch batch(limits, layout.page_tokens);
  batch.add({.tokens = ids, .pages = pages, .begin = 0, .end = num_tokens, .num_outputs = num_tokens});
  const Result<TensorView> logits = (*executor)->run(batch.inputs());
  if (!logits) return logits.error().with_context(run.name);
  values["logits"] = to_floats(*logits);
  return values;
}

struct Difference {
  double relative = 0;  // Frobenius, of the second
  double largest = 0;   // absolute
};

Difference difference(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, norm = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    error += d * d;
    norm += static_cast<double>(b[i]) * b[i];
    // A NaN is the largest of all and stays.
    if (!(std::fabs(d) <= largest)) largest = std::fabs(d);
  }
  return {std::sqrt(error / std::max(norm, 1e-300)), largest};
}

struct Row {
  std::string name;
  Difference absorbed, multi_head;  // against the reference
  Difference forms;                 // against each other
};

std::vector<Row> compare_values(const model::ModelConfig& config, const Values& absorbed,
                                const Values& multi_head, const Values& reference) {
  std::vector<std::string> names;
  for (int layer = 0; layer < config.num_layers; ++layer)
    for (const char* part : {"attention", "mlp", "out"})
      names.push_back(fmt::format("layers.{}.{}", layer, part));
  names.emplace_back("logits");
  std::vector<Row> rows;
  for (const std::string& name : names) {
    const auto a = absorbed.find(name), m = multi_head.find(name), r = reference.find(name);
    // A pass may have fused a value away.
    if (a == absorbed.end() || m == multi_head.end() || r == reference.end()) continue;
    rows.push_back({name, difference(a->second, r->second), difference(m->second, r->second),
                    difference(a->second, m->second)});
  }
  return rows;
}

// Positions at which both rows of logits have the same best token.
int count_same_best(const std::vector<float>& a, const std::vector<float>& b, size_t vocab) {
  int same = 0;
  for (size_t begin = 0; begin < a.size(); begin += vocab) {
    const auto best = [&](const std::vector<float>& v) {
      const auto first = v.begin() + static_cast<long>(begin);
      return std::max_element(first, first + static_cast<long>(vocab)) - first;
    };
    same += best(a) == best(b);
  }
  return same;
}

Result<std::vector<int32_t>> read_ids(const CompareFlags& flags, const model::ModelConfig& config) {
  if (!flags.token_ids.empty()) return read_token_ids(flags.token_ids);
  if (!flags.text.empty()) {
    const Result<std::string> text = io::read_text_file(flags.text, kMaxTextBytes);
    if (!text) return text.error();
    const Result<std::unique_ptr<text::Tokenizer>> tokenizer = open_tokenizer(flags.engine.model);
    if (!tokenizer) return model_error(tokenizer.error());
    if (*tokenizer == nullptr)
      return make_error(ErrorCode::kInvalidArgument, "{} has no tokenizer; give --token-ids",
                        flags.engine.model);
    return (*tokenizer)->encode_prompt(*text);
  }
  std::mt19937 rng(1);
  std::vector<int32_t> ids(static_cast<size_t>(std::min(kDefaultTokens, model::default_context(config))));
  for (int32_t& id : ids) id = static_cast<int32_t>(rng() % static_cast<uint32_t>(config.vocab));
  return ids;
}

Status check_ids(const std::vector<int32_t>& ids, const model::LoadedModel& model) {
  const int limit = std::min(kMaxTokens, model.max_positions);
  if (ids.empty()) return make_error(ErrorCode::kInvalidArgument, "nothing to compare: the prompt is empty");
  if (static_cast<int64_t>(ids.size()) > limit)
    return make_error(ErrorCode::kInvalidArgument, "{} tokens to compare; at most {} go in one step",
                      ids.size(), limit);
  return runtime::check_token_ids(ids, model.config.vocab, "token");
}

struct Comparison {
  std::vector<Row> rows;
  size_t num_tokens = 0;
  int same_best_absorbed = 0;
  int same_best_multi_head = 0;
};

Result<Comparison> compare_forms(model::LoadedModel& model, const std::vector<int32_t>& ids,
                                 const CompareFlags& flags) {
  const Result<runtime::EngineOptions> options = engine_options(flags.engine);
  if (!options) return options.error();
  const exec::ExecOptions exec{
      .num_threads = options->num_threads > 0 ? options->num_threads : available_cores(),
      .deterministic = options->deterministic,
      .poison = options->poison,
      .attention_backend = options->attention_backend};
  exec::ExecOptions reference_exec = exec;
  reference_exec.reference_kernels = true;
  reference_exec.attention_backend.clear();
  const Run runs[] = {
      {"absorbed form", ops::AttentionForm::kAbsorbed, model.activation, exec, options->kv_cache_dtype},
      {"multi-head form", ops::AttentionForm::kMultiHead, model.activation, exec, options->kv_cache_dtype},
      {"reference", ops::AttentionForm::kMultiHead, DType::kF32, reference_exec, DType::kF32}};
  std::vector<Values> values;
  for (const Run& run : runs) {
    Result<Values> v = run_prompt(model, ids, run, options->disabled_passes);
    if (!v) return v.error();
    values.push_back(*std::move(v));
  }
  const size_t vocab = static_cast<size_t>(model.config.vocab);
  return Comparison{.rows = compare_values(model.config, values[0], values[1], values[2]),
                    .num_tokens = ids.size(),
                    .same_best_absorbed = count_same_best(values[0]["logits"], values[2]["logits"], vocab),
                    .same_best_multi_head = count_same_best(values[1]["logits"], values[2]["logits"], vocab)};
}

nlohmann::json difference_json(const Difference& d) {
  return {{"relative", d.relative}, {"max_abs", d.largest}};
}

nlohmann::json comparison_json(const Comparison& c) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : c.rows)
    rows.push_back({{"value", row.name},
                    {"absorbed", difference_json(row.absorbed)},
                    {"multi_head", difference_json(row.multi_head)},
                    {"absorbed_to_multi_head", difference_json(row.forms)}});
  return {
      {"tokens", c.num_tokens},
      {"values", std::move(rows)},
      {"best_token_agrees", {{"absorbed", c.same_best_absorbed}, {"multi_head", c.same_best_multi_head}}}};
}

void print_comparison(const Comparison& c) {
  fmt::print("{} tokens; error relative to the reference (fp32 activations and cache, fp64 sums)\n\n",
             c.num_tokens);
  fmt::print("{:<24} {:>11} {:>11} {:>13}\n", "value", "absorbed", "multi-head", "between them");
  for (const Row& row : c.rows)
    fmt::print("{:<24} {:>11.2e} {:>11.2e} {:>13.2e}\n", row.name, row.absorbed.relative,
               row.multi_head.relative, row.forms.relative);
  fmt::print("\nlargest error of a logit: absorbed {:.3e}, multi-head {:.3e}\n",
             c.rows.back().absorbed.largest, c.rows.back().multi_head.largest);
  fmt::print("same best token as the reference: absorbed {} of {}, multi-head {} of {}\n",
             c.same_best_absorbed, c.num_tokens, c.same_best_multi_head, c.num_tokens);
}

int compare(const CompareFlags& flags) {
  catch_interrupts();
  Result<model::LoadedModel> model = load_weights(flags.engine);
  if (!model) return fail(model.error());
  const Result<std::vector<int32_t>> ids = read_ids(flags, model->config);
  if (!ids) return fail(ids.error());
  if (const Status s = check_ids(*ids, *model); !s) return fail(s.error());
  const Result<Comparison> comparison = compare_forms(*model, *ids, flags);
  if (!comparison) return fail(comparison.error());
  if (flags.json) {
    const Status s = write_json("-", comparison_json(*comparison));
    return s ? static_cast<int>(kOk) : fail(s.error());
  }
  print_comparison(*comparison);
  return kOk;
}

}  // namespace

void add_compare(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand(
      "compare", "Run absorbed form, multi-head form and reference side by side; error by layer");
  auto flags = std::make_shared<CompareFlags>();
  add_engine_flags(*command, flags->engine);
  CLI::Option* text =
      command->add_option("--text", flags->text, "File of text to run; left out, 64 random tokens");
  command->add_option("--token-ids", flags->token_ids, "File with a JSON list of token ids to run")
      ->excludes(text);
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, &action] { action = [flags] { return compare(*flags); }; });
}

}  // namespace latent::cli
