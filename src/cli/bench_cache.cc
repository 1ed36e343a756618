// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/attention_bench/cache_bench.h"
#include "cli/attention_bench/measure.h"
#include "cli/bench_report.h"
#include "cli/exit_code.h"
#include "cli/json_file.h"

namespace latent::cli {
namespace {

struct Row {
  CacheBenchCase problem;
  Protocol protocol = Protocol::kBurst;
  Timing timing;
};

Status run_case(Machine& machine, const CacheBenchCase& c, const std::vector<std::string>& protocols,
                std::vector<Row>* rows, double* read_rate) {
  const Result<CacheCalls> calls = CacheCalls::create(machine, c);
  if (!calls) return calls.error().with_context(to_string(c));
  for (const std::string& name : protocols) {
    const Protocol protocol = *parse_protocol(name);
    const std::vector<Timing> timings = measure(machine, {calls->call()}, calls->count(), protocol);
    rows->push_back({.problem = c, .protocol = protocol, .timing = timings.front()});
  }
  *read_rate = std::max(
      *read_rate, machine.read_rate(calls->pages(), calls->num_pages(), bench_layout(c.cache).page_bytes()));
  return {};
}

nlohmann::json row_json(const Row& row, double read_rate) {
  const CacheBenchCase& c = row.problem;
  const double bytes = bytes_of(c), floor = bytes / read_rate;
  return {{"op", c.op == CacheOp::kWrite ? "cache-write" : "gather"},
          {"cache", to_string(c.cache)},
          {"batch", c.batch},
          {"len", c.len},
          {"protocol", to_string(row.protocol)},
          {"us", 1e6 * row.timing.seconds},
          {"us_least_round", 1e6 * row.timing.least},
          {"us_most_round", 1e6 * row.timing.most},
          {"bytes_per_s", bytes / row.timing.seconds},
          {"floor_us", 1e6 * floor},
          {"share_of_floor", floor / row.timing.seconds}};
}

void print_rows(const std::vector<Row>& rows, double read_rate) {
  fmt::print("{:<11} {:<8} {:>6} {:>6} {:<9} {:>9} {:>6} {:>9} {:>6}\n", "op", "cache", "batch", "len",
             "protocol", "us", "TB/s", "floor us", "share");
  for (const Row& r : rows) {
    const double bytes = bytes_of(r.problem), floor = bytes / read_rate;
    fmt::print("{:<11} {:<8} {:>6} {:>6} {:<9} {:>9.2f} {:>6.3f} {:>9.2f} {:>5.1f}%\n",
               r.problem.op == CacheOp::kWrite ? "cache-write" : "gather", to_string(r.problem.cache),
               r.problem.batch, r.problem.len, to_string(r.protocol), 1e6 * r.timing.seconds,
               1e-12 * bytes / r.timing.seconds, 1e6 * floor, 100 * floor / r.timing.seconds);
  }
  fmt::print("\nread ceiling {:.3f} TB/s over pages in random order, this run; floor: bytes at that rate\n",
             1e-12 * read_rate);
}

}  // namespace

int bench_cache(const CacheFlags& flags) {
  const std::unique_ptr<Machine> machine = device_machine();
  if (machine == nullptr)
    return fail(
        make_error(ErrorCode::kUnsupported, "--op {} needs an NVIDIA GPU and a build for it", flags.op));
  std::vector<Row> rows;
  double read_rate = 0;
  for (const int batch : flags.batches)
    for (const int len : flags.lens) {
      const CacheBenchCase c{.op = flags.op == "gather" ? CacheOp::kGather : CacheOp::kWrite,
                             .cache = flags.kv_cache == "fp8"       ? DType::kF8E4M3
                                      : flags.kv_cache == "fp8-656" ? DType::kU8
                                                                    : DType::kBF16,
                             .batch = batch,
                             .len = len};
      if (Status s = run_case(*machine, c, flags.protocols, &rows, &read_rate); !s) return fail(s.error());
    }
  if (!flags.json) {
    print_rows(rows, read_rate);
    return kOk;
  }
  nlohmann::json json = nlohmann::json::array();
  for (const Row& row : rows) json.push_back(row_json(row, read_rate));
  const nlohmann::json ceilings = {{"machine", machine->name()}, {"read_bytes_per_s", read_rate}};
  const Status s =
      write_json("-", bench_envelope("attention-cache", command_line(), ceilings, std::move(json)));
  return s ? kOk : fail(s.error());
}

}  // namespace latent::cli
