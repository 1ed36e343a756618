// SPDX-License-Identifier: Apache-2.0
// latent inspect: what a model is, what it needs, and the graph it becomes. Reads no weights.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/json_file.h"
#include "cli/open_model.h"
#include "cli/say.h"
#include "cli/shapes.h"
#include "cli/summary.h"
#include "graph/pipeline.h"
#include "graph/print.h"
#include "model/build_graph.h"

namespace latent::cli {
namespace {

struct InspectFlags {
  EngineFlags engine;
  ShapeFlags shape;
  bool json = false;
  std::string graph;
  std::string format = "text";
  bool before_passes = false;
};

// The model as it would be served, without its weights.
struct Subject {
  model::ModelConfig config;
  DType activation;
  runtime::EngineLimits limits;
  runtime::EngineOptions options;
};

Result<Subject> read_subject(const InspectFlags& flags) {
  const Result<model::ModelConfig> config = chosen_config(flags.engine.model, flags.shape);
  if (!config) return config.error();
  const Result<runtime::EngineOptions> options = engine_options(flags.engine);
  if (!options) return options.error();
  const Result<int> context = context_limit(*config, flags.engine);
  if (!context) return context.error();
  const DType activation = model::activation_dtype(config->checkpoint_dtype, compute_dtype(flags.engine));
  const Result<runtime::EngineLimits> limits = runtime::plan_limits(*config, activation, *context, *options);
  if (!limits) return limits.error();
  return Subject{*config, activation, *limits, *options};
}

Result<graph::Graph> make_graph(const Subject& subject, ops::AttentionForm form, bool with_passes) {
  const DType cache = runtime::cache_dtype(subject.activation, subject.options);
  graph::Graph graph = model::build_graph(subject.config, {.types = model::weight_types(subject.config),
                                                           .activation = subject.activation,
                                                           .kv = model::kv_layout(subject.config, cache),
                                                           .max_positions = subject.limits.context_tokens});
  graph.name = form == ops::AttentionForm::kMultiHead ? "prefill" : "decode";
  if (!with_passes) return graph;
  const Result<std::vector<graph::PassReport>> passes = graph::run_pipeline(
      graph, {.form = form, .poison = subject.options.poison, .disabled = subject.options.disabled_passes});
  if (!passes) return passes.error();
  for (const graph::PassReport& pass : *passes)
    say("pass {:<22} {}\n", pass.name,
        pass.disabled ? "off" : fmt::format("{} matches, {:.0f} us", pass.matches, pass.us));
  return graph;
}

int print_graph(const InspectFlags& flags, const Subject& subject) {
  const auto form = flags.graph == "prefill" ? ops::AttentionForm::kMultiHead : ops::AttentionForm::kAbsorbed;
  const Result<graph::Graph> graph = make_graph(subject, form, !flags.before_passes);
  if (!graph) return fail(graph.error());
  const std::string text = flags.format == "dot"   ? graph::print_dot(*graph)
                           : flags.format == "svg" ? graph::print_svg(*graph)
                                                   : graph::print_text(*graph);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kOk;
}

nlohmann::json subject_json(const Subject& s, const ModelSummary& summary) {
  const model::ModelConfig& c = s.config;
  nlohmann::json parts = nlohmann::json::object();
  for (const ModelPart& part : summary.parts)
    parts[part.name] = {{"parameters", part.parameters}, {"bytes", part.bytes}};
  return {{"architecture", c.architecture_name},
          {"layers", c.num_layers},
          {"moe_layers", summary.num_moe_layers},
          {"hidden", c.hidden},
          {"vocab", c.vocab},
          {"heads", c.num_heads},
          {"q_rank", c.q_rank},
          {"kv_rank", c.kv_rank},
          {"nope_dim", c.nope_dim},
          {"rope_dim", c.rope_dim},
          {"v_dim", c.v_dim},
          {"experts", c.moe.num_experts},
          {"experts_per_token", c.moe.router.top_k},
          {"softmax_scale", c.softmax_scale},
          {"checkpoint_dtype", to_string(c.checkpoint_dtype)},
          {"fp8_block", {c.quant.block_rows, c.quant.block_cols}},
          {"activation_dtype", to_string(s.activation)},
          {"kv_cache_dtype", to_string(runtime::cache_dtype(s.activation, s.options))},
          {"parameters", summary.parameters},
          {"active_parameters", summary.active_parameters},
          {"parts", std::move(parts)},
          {"memory",
           {{"weights", summary.bytes},
            {"absorbed_weights", summary.absorbed_bytes},
            {"cache", s.limits.cache_bytes}}},
          {"cache_bytes_per_token", s.limits.cache_token_bytes},
          {"limits",
           {{"context", s.limits.context_tokens},
            {"checkpoint_context", c.max_positions},
            {"prefill_chunk", s.limits.prefill_chunk_tokens},
            {"requests_per_step", s.limits.max_seqs},
            {"page_tokens", s.limits.page_tokens},
            {"pages", s.limits.num_pages}}}};
}

std::string mib(int64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

void print_subject(const Subject& s, const ModelSummary& summary) {
  const model::ModelConfig& c = s.config;
  fmt::print("architecture   {} ({} layers, {} of them MoE; hidden {}, vocabulary {})\n", c.architecture_name,
             c.num_layers, summary.num_moe_layers, c.hidden, c.vocab);
  fmt::print("attention      {} heads; q rank {}, kv rank {}, nope {}, rope {}, v {}; softmax scale {:.6f}\n",
             c.num_heads, c.q_rank, c.kv_rank, c.nope_dim, c.rope_dim, c.v_dim, c.softmax_scale);
  if (c.moe.num_experts > 0)
    fmt::print("experts        {} routed, {} a token, {} shared; width {}\n", c.moe.num_experts,
               c.moe.router.top_k, c.moe.num_shared_experts, c.moe.expert_inter);
  const std::string blocks = c.quant.block_rows > 0 ? fmt::format(" (matrices fp8 in blocks of {} x {})",
                                                                  c.quant.block_rows, c.quant.block_cols)
                                                    : "";
  fmt::print("types          checkpoint {}{}, activations {}, cache {}\n", to_string(c.checkpoint_dtype),
             blocks, to_string(s.activation), to_string(runtime::cache_dtype(s.activation, s.options)));
  fmt::print("parameters     {:.1f} M, {:.1f} M active a token\n\n",
             static_cast<double>(summary.parameters) * 1e-6,
             static_cast<double>(summary.active_parameters) * 1e-6);
  fmt::print("{:<22} {:>14} {:>14}\n", "part", "parameters", "memory");
  for (const ModelPart& part : summary.parts)
    fmt::print("{:<22} {:>14} {:>14}\n", part.name, part.parameters, mib(part.bytes));
  fmt::print("{:<22} {:>14} {:>14}\n", "absorbed for decode", "", mib(summary.absorbed_bytes));
  fmt::print("{:<22} {:>14} {:>14}\n\n", "cache", "", mib(s.limits.cache_bytes));
  fmt::print(
      "cache          {} bytes a token in all layers; {} pages of {} tokens, the null page among them\n",
      s.limits.cache_token_bytes, s.limits.num_pages, s.limits.page_tokens);
  fmt::print("limits         context {} tokens (the checkpoint's: {}), prefill chunk {}, {} request a step\n",
             s.limits.context_tokens, c.max_positions, s.limits.prefill_chunk_tokens, s.limits.max_seqs);
}

int inspect(const InspectFlags& flags) {
  const Result<Subject> subject = read_subject(flags);
  if (!subject) return fail(subject.error());
  if (!flags.graph.empty()) return print_graph(flags, *subject);
  const Result<graph::Graph> prefill = make_graph(*subject, ops::AttentionForm::kMultiHead, false);
  if (!prefill) return fail(prefill.error());
  Result<ModelSummary> summary = summarise(subject->config, *prefill);
  if (!summary) return fail(summary.error());
  if (flags.json) {
    const Status s = write_json("-", subject_json(*subject, *summary));
    return s ? static_cast<int>(kOk) : fail(s.error());
  }
  print_subject(*subject, *summary);
  return kOk;
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("inspect", "What a model is, what it needs, and the graph it becomes");
  auto flags = std::make_shared<InspectFlags>();
  add_model_or_shape(*command, flags->engine, flags->shape);
  CLI::Option* json = command->add_flag("--json", flags->json, "Print one JSON object");
  CLI::Option* graph =
      command
          ->add_option("--graph", flags->graph,
                       "Print this graph instead, after its passes (their counts go to stderr)")
          ->check(CLI::IsMember({"prefill", "decode"}))
          ->excludes(json);
  command->add_option("--format", flags->format, "How to print the graph")
      ->check(CLI::IsMember({"text", "dot", "svg"}))
      ->capture_default_str()
      ->needs(graph);
  command->add_flag("--before-passes", flags->before_passes, "The graph as built from the config")
      ->needs(graph);
  command->callback([flags, &action] { action = [flags] { return inspect(*flags); }; });
}

}  // namespace latent::cli
