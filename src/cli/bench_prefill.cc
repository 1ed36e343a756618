// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_prefill.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/parallel.h"
#include "cli/attention_bench/prefill_bench.h"
#include "cli/bench_report.h"
#include "cli/exit_code.h"
#include "cli/json_file.h"

namespace latent::cli {
namespace {

using attention::PrefillBackend;

std::vector<PrefillBenchCase> chosen_cases(const PrefillFlags& flags) {
  if (flags.grid) return judged_prefill_cases();
  std::vector<PrefillBenchCase> cases;
  for (const int heads : flags.heads)
    for (const int batch : flags.batches)
      for (const int len : flags.lens)
        for (const int context : flags.contexts)
          cases.push_back({.heads = heads, .batch = batch, .len = len, .context = context});
  return cases;
}

// The named ones, or every one but the reference that runs where the first of them runs.
Result<std::vector<const PrefillBackend*>> chosen_backends(const PrefillFlags& flags, bool on_device) {
  const PrefillBenchCase usual;
  const attention::PrefillDesc desc{
      .attrs = {.num_heads = usual.heads, .nope_dim = usual.nope, .rope_dim = usual.rope, .v_dim = usual.v},
      .on_device = on_device};
  std::vector<const PrefillBackend*> chosen;
  for (const std::string& name : flags.backends) {
    Result<const PrefillBackend*> backend = attention::select_prefill(desc, name);
    if (!backend) return backend.error();
    chosen.push_back(*backend);
  }
  if (!chosen.empty()) return chosen;
  for (const PrefillBackend* b : attention::prefill_backends())
    if (b->name() != std::string("ref") && !b->supports(desc)) chosen.push_back(b);
  if (chosen.empty())
    return make_error(ErrorCode::kUnsupported,
                      "no backend but the reference attends to prompts here; --backend ref times it");
  return chosen;
}

double floor_seconds(const PrefillBenchRow& row, double product_rate) {
  return product_rate > 0 ? work_of(row.problem).flops / product_rate : 0;
}

nlohmann::json row_json(const PrefillBenchRow& row, double product_rate) {
  const PrefillBenchCase& c = row.problem;
  const BenchWork work = work_of(c);
  const double floor = floor_seconds(row, product_rate);
  nlohmann::json json = {{"heads", c.heads},
                         {"qk_width", c.nope + c.rope},
                         {"v_width", c.v},
                         {"q_len", c.len},
                         {"batch", c.batch},
                         {"len", c.len + c.context},
                         {"lengths", "causal"},
                         {"backend", row.backend},
                         {"protocol", to_string(row.protocol)},
                         {"us", 1e6 * row.timing.seconds},
                         {"us_least_round", 1e6 * row.timing.least},
                         {"us_most_round", 1e6 * row.timing.most},
                         {"bytes_per_s", work.bytes / row.timing.seconds},
                         {"flops_per_s", work.flops / row.timing.seconds},
                         {"floor_us", 1e6 * floor},
                         {"share_of_floor", floor / row.timing.seconds},
                         {"plan_us", 0.0},
                         {"difference_to_first", row.difference}};
  if (row.timing.joules > 0) json["joules_per_flop"] = row.timing.joules / work.flops;
  return json;
}

void print_rows(const std::vector<PrefillBenchRow>& rows, double product_rate) {
  fmt::print("{:>5} {:>7} {:>5} {:>6} {:>7} {:<9} {:<10} {:>9} {:>8} {:>9} {:>6} {:>9}\n", "heads", "widths",
             "batch", "len", "context", "protocol", "backend", "us", "TFLOP/s", "floor us", "share", "diff");
  for (const PrefillBenchRow& r : rows) {
    const PrefillBenchCase& c = r.problem;
    const double floor = floor_seconds(r, product_rate);
    fmt::print("{:>5} {:>7} {:>5} {:>6} {:>7} {:<9} {:<10} {:>9.1f} {:>8.1f} {:>9.1f} {:>5.1f}% {:>9.1e}\n",
               c.heads, fmt::format("{}/{}", c.nope + c.rope, c.v), c.batch, c.len, c.context,
               to_string(r.protocol), r.backend, 1e6 * r.timing.seconds,
               1e-12 * work_of(c).flops / r.timing.seconds, 1e6 * floor, 100 * floor / r.timing.seconds,
               r.difference);
  }
  fmt::print("\nhalf the square of new tokens counts as work; floor: products at {:.0f} TFLOP/s\n",
             1e-12 * product_rate);
}

}  // namespace

int bench_prompts(const PrefillFlags& flags) {
  const std::unique_ptr<Machine> device = device_machine();
  const Result<std::vector<const PrefillBackend*>> backends = chosen_backends(flags, device != nullptr);
  if (!backends) return fail(backends.error());
  const std::unique_ptr<Machine> host = device ? nullptr : host_machine(available_cores());
  Machine& machine = device ? *device : *host;
  std::vector<Protocol> protocols;
  for (const std::string& name : flags.protocols) protocols.push_back(*parse_protocol(name));
  const auto rows = bench_prefill(machine, chosen_cases(flags), *backends, protocols);
  if (!rows) return fail(rows.error());
  if (flags.json) {
    nlohmann::json json = nlohmann::json::array();
    for (const PrefillBenchRow& row : *rows) json.push_back(row_json(row, machine.product_rate()));
    const nlohmann::json ceilings = {{"machine", machine.name()},
                                     {"read_bytes_per_s", 0.0},
                                     {"product_flops_per_s", machine.product_rate()}};
    const Status s =
        write_json("-", bench_envelope("attention-prefill", command_line(), ceilings, std::move(json)));
    if (!s) return fail(s.error());
  } else {
    print_rows(*rows, machine.product_rate());
  }
  for (const PrefillBenchRow& row : *rows)
    if (std::isnan(row.difference))
      return fail(make_error(ErrorCode::kNonFinite, "{} left outputs unwritten or not finite at {}",
                             row.backend, to_string(row.problem)));
  return kOk;
}

}  // namespace latent::cli
