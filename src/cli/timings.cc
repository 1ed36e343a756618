// SPDX-License-Identifier: Apache-2.0
#include "cli/timings.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/peak_memory.h"
#include "cli/say.h"
#include "cli/traffic.h"

namespace latent::cli {
namespace {

constexpr double kProbeSeconds = 0.15;  // before the run, and again after it
constexpr size_t kProbeBytes = size_t{1} << 30;

double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

}  // namespace

MemoryUse memory_use(const runtime::Engine& engine) {
  return {.peak = peak_resident_bytes(),
          .weights = engine.model().report.bytes,
          .folded = engine.limits().weight_bytes - engine.model().report.bytes,
          .cache = engine.limits().cache_bytes,
          .intermediates = engine.limits().prefill_arena_bytes + engine.limits().decode_arena_bytes};
}

std::string memory_text(const MemoryUse& memory) {
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  return fmt::format(
      "memory: {:.1f} MiB at its peak; weights {:.1f}, folded from them {:.1f}, cache {:.1f}, intermediates "
      "{:.1f} MiB",
      mib(memory.peak), mib(memory.weights), mib(memory.folded), mib(memory.cache),
      mib(memory.intermediates));
}

nlohmann::json memory_json(const MemoryUse& memory) {
  return {{"peak", memory.peak},
          {"weights", memory.weights},
          {"folded", memory.folded},
          {"cache", memory.cache},
          {"intermediates", memory.intermediates}};
}

double Timings::prefill_tokens_per_second() const { return rate(stats.prompt_tokens, stats.prefill_seconds); }

double Timings::decode_tokens_per_second() const {
  return stats.generated_tokens > 1 ? rate(stats.generated_tokens - 1, stats.decode_seconds) : 0;
}

double Timings::decode_bytes_per_second() const {
  return decode_tokens_per_second() * static_cast<double>(bytes_per_token);
}

std::optional<double> Timings::share() const {
  if (!ceiling || decode_tokens_per_second() == 0) return std::nullopt;
  return decode_bytes_per_second() / ceiling->bytes_per_second;
}

int64_t bytes_per_token(const runtime::Engine& engine, const runtime::RequestStats& stats) {
  const int64_t mean_context = stats.prompt_tokens + stats.generated_tokens / 2;
  return decode_weight_bytes(engine.decode().graph(), engine.model().weights) +
         mean_context * engine.limits().cache_token_bytes;
}

void print_timings(const Timings& t) {
  say("\nload {:.2f} s · prompt {} tokens, {:.1f} tokens/s", t.load_seconds, t.stats.prompt_tokens,
      t.prefill_tokens_per_second());
  const bool decoded = t.stats.generated_tokens > 1;  // the first token is the prompt's
  say(" · answer {} tokens{}\n", t.stats.generated_tokens,
      decoded ? fmt::format(", {:.1f} tokens/s", t.decode_tokens_per_second()) : "");
  if (decoded)
    say("a token reads {:.2f} MiB of weights and cache: {:.2f} GB/s",
        static_cast<double>(t.bytes_per_token) / (1 << 20), t.decode_bytes_per_second() * 1e-9);
  const std::optional<double> share = t.share();
  if (share) {
    say(", {:.1f} % of the {:.1f} GB/s at which this machine reads {:.0f} MiB (best of {} loops: {})",
        100 * *share, t.ceiling->bytes_per_second * 1e-9,
        static_cast<double>(t.ceiling->num_bytes) / (1 << 20), t.ceiling->num_forms, t.ceiling->form);
    if (*share > 1)
      log(LogLevel::kError, "a share above 100 %: the ceiling was not reached by its own loops");
  }
  if (decoded) say("\n");
  say("{}\n", memory_text(t.memory));
}

nlohmann::json timings_json(const Timings& t) {
  nlohmann::json json = {{"load_s", t.load_seconds},
                         {"prefill_s", t.stats.prefill_seconds},
                         {"decode_s", t.stats.decode_seconds},
                         {"prefill_tokens_per_s", t.prefill_tokens_per_second()},
                         {"decode_tokens_per_s", t.decode_tokens_per_second()},
                         {"bytes_per_token", t.bytes_per_token},
                         {"decode_bytes_per_s", t.decode_bytes_per_second()},
                         {"memory_bytes", memory_json(t.memory)}};
  if (const std::optional<double> share = t.share()) {
    json["ceiling_bytes_per_s"] = t.ceiling->bytes_per_second;
    json["ceiling_form"] = t.ceiling->form;
    json["share"] = *share;
  }
  return json;
}

struct CeilingProbe::Impl {
  ReadCeiling ceiling;
};

CeilingProbe::CeilingProbe(const runtime::Engine& engine)
    : impl_(new Impl{ReadCeiling(weight_regions(engine.decode().graph(), engine.model().weights), kProbeBytes,
                                 engine.num_threads())}) {
  impl_->ceiling.measure_for(kProbeSeconds);
}
CeilingProbe::~CeilingProbe() = default;

Timings::Ceiling CeilingProbe::finish() {
  impl_->ceiling.measure_for(kProbeSeconds);
  return {.bytes_per_second = impl_->ceiling.best_bytes_per_second(),
          .form = impl_->ceiling.best_form(),
          .num_forms = impl_->ceiling.num_forms(),
          .num_bytes = impl_->ceiling.num_bytes()};
}

}  // namespace latent::cli
