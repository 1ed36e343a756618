// SPDX-License-Identifier: Apache-2.0
#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <random>

#include "cli/generation_defaults.h"

namespace latent::cli {
namespace {

constexpr char kModelGroup[] = "Model and machine";
constexpr char kSamplingGroup[] = "Sampling";

Result<runtime::LogitBias> parse_logit_bias(const std::string& text) {
  const size_t equals = text.find('=');
  runtime::LogitBias bias;
  if (equals == std::string::npos || !CLI::detail::lexical_cast(text.substr(0, equals), bias.id) ||
      !CLI::detail::lexical_cast(text.substr(equals + 1), bias.bias))
    return make_error(ErrorCode::kInvalidArgument, "--logit-bias '{}' is not ID=BIAS, e.g. 42=-100", text);
  return bias;
}

// CLI11 lets -1 and what is beyond 64 bits become the largest seed.
std::string seed_error(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error == std::errc() && end == text.data() + text.size()) return "";
  return fmt::format("'{}' is not a whole number from 0 to {}", text, std::numeric_limits<uint64_t>::max());
}

}  // namespace

void add_engine_flags(CLI::App& app, EngineFlags& flags, bool needs_model) {
  if (needs_model)
    app.add_option("MODEL", flags.model, "Folder with config.json and safetensors, as Hugging Face has it")
        ->required();
  const auto option = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->group(kModelGroup);
  };
  option("--threads", flags.threads, "Compute threads; 0: every core")
      ->check(CLI::Range(0, runtime::kMaxThreads));
  option("--context", flags.context,
         "Context limit in tokens, prompt and answer together; memory for it is reserved at start. 0: the "
         "model's, "
         "at most 32768");
  option("--prefill-chunk", flags.prefill_chunk, "Prompt tokens of one step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  option("--kv-cache", flags.kv_cache, "Type of the latent cache; auto: fp32 for fp32 models, else bf16")
      ->check(CLI::IsMember({"auto", "bf16", "fp16", "fp32"}))
      ->capture_default_str();
  option("--compute", flags.compute,
         "Type of activations; auto: fp32 for fp32 and fp16 checkpoints, else bf16")
      ->check(CLI::IsMember({"auto", "fp32", "bf16"}))
      ->capture_default_str();
  option("--attention-backend", flags.attention_backend,
         "Force this attention backend; an error says why if it cannot serve the model");
  app.add_flag("--deterministic", flags.deterministic,
               "Bit-identical results for any chunking, batch and run on this machine")
      ->group(kModelGroup);
  option("--poison", flags.poison,
         "Fill memory with this pattern wherever nobody has written yet; results are the same under each")
      ->check(CLI::IsMember({"nan", "inf", "large", "none"}))
      ->capture_default_str();
  option("--disable-pass", flags.disable_passes,
         "Switch a graph pass off, by the name that `inspect --graph` prints")
      ->allow_extra_args(false);
}

Result<runtime::EngineOptions> engine_options(const EngineFlags& flags) {
  runtime::EngineOptions options{.num_threads = flags.threads,
                                 .deterministic = flags.deterministic,
                                 .attention_backend = flags.attention_backend,
                                 .prefill_chunk_tokens = flags.prefill_chunk};
  options.disabled_passes = {flags.disable_passes.begin(), flags.disable_passes.end()};
  const std::optional<PoisonPattern> poison = parse_poison(flags.poison);
  if (!poison) return make_error(ErrorCode::kInvalidArgument, "--poison '{}' is no pattern", flags.poison);
  options.poison = *poison;
  if (flags.kv_cache == "bf16") options.kv_cache_dtype = DType::kBF16;
  if (flags.kv_cache == "fp16") options.kv_cache_dtype = DType::kF16;
  if (flags.kv_cache == "fp32") options.kv_cache_dtype = DType::kF32;
  return options;
}

std::optional<DType> compute_dtype(const EngineFlags& flags) {
  if (flags.compute == "fp32") return DType::kF32;
  if (flags.compute == "bf16") return DType::kBF16;
  return std::nullopt;
}

void add_sampling_flags(CLI::App& app, SamplingFlags& flags) {
  const auto option = [&](const char* name, auto& value, const char* help) {
    return app.add_option(name, value, help)->group(kSamplingGroup);
  };
  option("-n,--max-tokens", flags.max_tokens,
         "Tokens to generate at most; left out: up to the context limit");
  option("--temperature", flags.temperature,
         "0: greedy; left out: the model's generation_config.json, else 1");
  option("--top-k", flags.top_k, "Draw from the k best tokens; 0 or -1: from all");
  option("--top-p", flags.top_p,
         "Draw from the smallest set with at least this mass; 0 leaves one token, 1 all");
  option("--min-p", flags.min_p, "Drop tokens less probable than this times the best");
  option("--repetition-penalty", flags.repetition_penalty,
         "Divide positive (multiply negative) logits of tokens in prompt or answer; 1: off");
  option("--presence-penalty", flags.presence_penalty, "Subtract this from logits of tokens in the answer");
  option("--frequency-penalty", flags.frequency_penalty,
         "Subtract this for each time the token is in the answer");
  option("--logit-bias", flags.logit_bias,
         "ID=BIAS: add to the logit of a token, -100 to 100; may be repeated")
      ->allow_extra_args(false);
  option("--seed", flags.seed,
         "Seed of the draws; the same seed draws the same tokens. Left out: a fresh one")
      ->check(seed_error);
  option("--stop", flags.stop, "End before this text; may be repeated")->allow_extra_args(false);
  option("--stop-id", flags.stop_ids, "End at this token id; may be repeated")->allow_extra_args(false);
  app.add_flag("--ignore-eos", flags.ignore_eos, "Go on past the model's end-of-sequence tokens")
      ->group(kSamplingGroup);
  option("--logprobs", flags.logprobs,
         "With --json: log-probabilities of each token and of the n best (0 to 20)");
}

Result<runtime::Request> make_request(const SamplingFlags& flags, const std::string& model_folder) {
  Result<runtime::SamplingParams> defaults = generation_defaults(model_folder);
  if (!defaults) return defaults.error();
  runtime::Request request;
  runtime::SamplingParams& s = request.sampling;
  s = *std::move(defaults);
  s.temperature = flags.temperature.value_or(s.temperature);
  s.top_k = flags.top_k.value_or(s.top_k);
  s.top_p = flags.top_p.value_or(s.top_p);
  s.min_p = flags.min_p.value_or(s.min_p);
  s.repetition_penalty = flags.repetition_penalty.value_or(s.repetition_penalty);
  s.presence_penalty = flags.presence_penalty.value_or(s.presence_penalty);
  s.frequency_penalty = flags.frequency_penalty.value_or(s.frequency_penalty);
  s.seed = flags.seed ? *flags.seed : std::random_device{}();
  s.num_logprobs = flags.logprobs;
  for (const std::string& text : flags.logit_bias) {
    const Result<runtime::LogitBias> bias = parse_logit_bias(text);
    if (!bias) return bias.error();
    s.logit_bias.push_back(*bias);
  }
  request.max_tokens = flags.max_tokens;
  request.stop_strings = flags.stop;
  request.stop_ids = flags.stop_ids;
  request.ignore_eos = flags.ignore_eos;
  return request;
}

}  // namespace latent::cli
