// SPDX-License-Identifier: Apache-2.0
// latent bench attention: decode attention of every backend on the same inputs, in turns, beside the
// machine's floor.
#include "cli/bench_attention.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/parallel.h"
#include "cli/attention_bench/measure.h"
#include "cli/bench_cache.h"
#include "cli/bench_prefill.h"
#include "cli/bench_report.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/json_file.h"

namespace latent::cli {
namespace {

using attention::Backend;

constexpr double kDevicePoolGb = 14;

struct AttentionFlags {
  std::vector<int> heads = {16}, q_lens = {1}, batches = {1}, padded = {0}, lens = {8192};
  std::string lengths = "equal", kv_cache = "bf16", op = "decode";
  std::vector<std::string> protocols = {"burst"};
  std::vector<std::string> backends;
  double pool_gb = 0;
  int threads = 0;
  std::vector<int> contexts = {0};
  bool prefill = false, grid = false, list = false, json = false;
};

struct Row {
  BenchCase problem;
  std::string backend;
  Protocol protocol = Protocol::kBurst;
  Timing timing;
  double plan_seconds = 0;
  double floor_seconds = 0;
  double difference = 0;  // to the first backend's output
};

// What a run is measured against and in.
struct Bounds {
  double read_rate = 0;     // bytes a second
  double product_rate = 0;  // flops a second; 0 if unknown
  double floor(const BenchWork& work) const {
    const double products = product_rate > 0 ? work.flops / product_rate : 0;
    return std::max(work.bytes / read_rate, products);
  }
};

DType cache_dtype(const AttentionFlags& flags) {
  return flags.kv_cache == "fp8" ? DType::kF8E4M3 : flags.kv_cache == "fp8-656" ? DType::kU8 : DType::kBF16;
}

attention::MlaDesc bench_desc(const AttentionFlags& flags, bool on_device) {
  return {
      .attrs = bench_attrs(flags.heads.front()), .cache_dtype = cache_dtype(flags), .on_device = on_device};
}

std::vector<const Backend*> all_backends(const std::vector<const Backend*>& rivals) {
  std::vector<const Backend*> all(attention::backends().begin(), attention::backends().end());
  all.insert(all.end(), rivals.begin(), rivals.end());
  return all;
}

// Device memory where it serves that, else host memory; the reason of the first if neither.
struct Home {
  bool on_device = false;
  std::optional<attention::Refusal> refusal;
};

Home find_home(const Backend& backend, const AttentionFlags& flags, bool has_device) {
  Home home{.on_device = true, .refusal = backend.supports(bench_desc(flags, true))};
  if (has_device && !home.refusal) return home;
  const std::optional<attention::Refusal> on_host = backend.supports(bench_desc(flags, false));
  if (!on_host) return {.on_device = false, .refusal = std::nullopt};
  if (!home.refusal) home.refusal = attention::Refusal{"needs an NVIDIA GPU, and the driver shows none"};
  return home;
}

nlohmann::json list_backends(const AttentionFlags& flags, const std::vector<const Backend*>& rivals,
                             bool has_device) {
  nlohmann::json rows = nlohmann::json::array();
  const std::vector<const Backend*> built = all_backends(rivals);
  for (const attention::AbsentBackend& absent : attention::absent_backends())
    rows.push_back({{"backend", absent.name}, {"runs", false}, {"reason", absent.reason}});
  for (const Backend* b : built) {
    const Home home = find_home(*b, flags, has_device);
    rows.push_back({{"backend", b->name()}, {"runs", !home.refusal.has_value()}});
    rows.back()[home.refusal ? "reason" : "memory"] = home.refusal     ? home.refusal->reason
                                                      : home.on_device ? "device"
                                                                       : "host";
  }
  return rows;
}

int print_list(const AttentionFlags& flags, const std::vector<const Backend*>& rivals, bool has_device) {
  const nlohmann::json rows = list_backends(flags, rivals, has_device);
  if (flags.json) {
    const Status s =
        write_json("-", bench_envelope("attention-list", command_line(), nlohmann::json::object(), rows));
    return s ? kOk : fail(s.error());
  }
  for (const nlohmann::json& row : rows)
    fmt::print("{:<12} {}\n", row["backend"].get<std::string>(),
               row["runs"].get<bool>() ? "runs on " + row["memory"].get<std::string>() + " memory"
                                       : "cannot run: it " + row["reason"].get<std::string>());
  return kOk;
}

std::vector<BenchCase> chosen_cases(const AttentionFlags& flags) {
  std::vector<BenchCase> cases;
  if (flags.grid) cases = judged_cases();
  for (BenchCase& c : cases) c.cache = cache_dtype(flags);
  if (flags.grid) return cases;
  for (const int heads : flags.heads)
    for (const int q_len : flags.q_lens)
      for (const int batch : flags.batches)
        for (const int len : flags.lens)
          for (const int padded : flags.padded)
            cases.push_back({.heads = heads,
                             .q_len = q_len,
                             .batch = batch,
                             .len = len,
                             .cache = cache_dtype(flags),
                             .padded = padded,
                             .varied = flags.lengths == "varied"});
  return cases;
}

// The named ones, or every one but the reference that runs where the first of them runs.
Result<std::vector<const Backend*>> chosen_backends(const AttentionFlags& flags,
                                                    const std::vector<const Backend*>& rivals,
                                                    bool has_device) {
  std::vector<const Backend*> chosen;
  const std::vector<const Backend*> all = all_backends(rivals);
  for (const std::string& name : flags.backends) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Backend* b) { return b->name() == name; });
    if (found == all.end()) {
      for (const attention::AbsentBackend& absent : attention::absent_backends())
        if (name == absent.name)
          return make_error(ErrorCode::kUnsupported, "attention backend '{}' {}", name, absent.reason);
      std::vector<std::string> names;
      for (const Backend* b : all) names.emplace_back(b->name());
      return make_error(ErrorCode::kInvalidArgument, "no attention backend '{}'; this build has {}", name,
                        fmt::join(names, ", "));
    }
    const Home home = find_home(**found, flags, has_device);
    if (home.refusal)
      return make_error(ErrorCode::kUnsupported, "attention backend '{}' cannot run here: it {}", name,
                        home.refusal->reason);
    chosen.push_back(*found);
  }
  if (!chosen.empty()) return chosen;
  for (const Backend* b : all) {
    const Home home = find_home(*b, flags, has_device);
    const bool is_reference = b->name() == std::string("ref");
    if (!home.refusal && home.on_device == has_device && !is_reference) chosen.push_back(b);
  }
  return chosen;
}

std::optional<attention::Refusal> refuse(const Backend& backend, const InputSets& inputs) {
  const auto ours = attention::backends();
  const bool is_rival = std::find(ours.begin(), ours.end(), &backend) == ours.end();
  if (is_rival && inputs.problem().padded > 0) return attention::Refusal{"knows no padded rows"};
  return backend.supports(inputs.desc());
}

class AttentionBench {
 public:
  AttentionBench(const AttentionFlags& flags, std::vector<const Backend*> backends, Machine& machine)
      : flags_(flags), backends_(std::move(backends)), machine_(machine) {
    threads_ = flags.threads > 0 ? flags.threads : available_cores();
  }

  Status run() {
    const std::vector<BenchCase> cases = chosen_cases(flags_);
    Result<PagePool> pool = PagePool::create(machine_, cache_dtype(flags_), pool_bytes(cases));
    if (!pool) return pool.error().with_context("the pool of cache pages (--pool-gb)");
    pool_ = *std::move(pool);
    measure_read_rate();
    for (const BenchCase& c : cases) {
      if (interrupted()) break;
      if (Status s = run_case(c); !s) return s.error().with_context(to_string(c));
    }
    measure_read_rate();
    for (Row& row : rows_) row.floor_seconds = bounds().floor(work_of(row.problem));
    return {};
  }

  Bounds bounds() const { return {read_rate_, machine_.product_rate()}; }
  const std::vector<Row>& rows() const { return rows_; }
  double pool_gb() const { return 1e-9 * static_cast<double>(pool_.num_pages() * pool_.page_bytes()); }

 private:
  size_t pool_bytes(const std::vector<BenchCase>& cases) const {
    if (flags_.pool_gb > 0) return static_cast<size_t>(1e9 * flags_.pool_gb);
    const size_t least = least_pool_bytes(cases);
    return machine_.is_device() ? std::max(least, static_cast<size_t>(1e9 * kDevicePoolGb)) : least;
  }

  void measure_read_rate() {
    read_rate_ =
        std::max(read_rate_, machine_.read_rate(pool_.data(), pool_.num_pages(), pool_.page_bytes()));
  }

  Status run_case(const BenchCase& c) {
    log(LogLevel::kDebug, "{}", to_string(c));
    const Result<InputSets> inputs = InputSets::create(machine_, c, pool_);
    if (!inputs) return inputs.error();
    std::vector<Contestant> contestants;
    for (const Backend* b : backends_) {
      if (const auto refusal = refuse(*b, *inputs)) {
        log(LogLevel::kWarn, "{}: {} {}", to_string(c), b->name(), refusal->reason);
        continue;
      }
      Result<Contestant> contestant = Contestant::create(machine_, *inputs, *b, threads_);
      if (!contestant) return contestant.error();
      contestants.push_back(*std::move(contestant));
    }
    if (contestants.empty()) return make_error(ErrorCode::kUnsupported, "no backend serves this case");
    std::vector<double> differences;
    for (const Contestant& who : contestants)
      differences.push_back(difference(machine_, *inputs, who, contestants.front()));
    std::vector<BenchCall> calls;
    for (const Contestant& who : contestants) calls.push_back(who.call(*inputs));
    for (const std::string& name : flags_.protocols) {
      if (interrupted()) break;
      const Protocol protocol = *parse_protocol(name);
      const std::vector<Timing> timings = measure(machine_, calls, inputs->count(), protocol);
      for (size_t i = 0; i < contestants.size(); ++i)
        rows_.push_back({.problem = c,
                         .backend = contestants[i].name(),
                         .protocol = protocol,
                         .timing = timings[i],
                         .plan_seconds = contestants[i].plan_seconds(),
                         .floor_seconds = 0,
                         .difference = differences[i]});
    }
    return {};
  }

  const AttentionFlags& flags_;
  std::vector<const Backend*> backends_;
  Machine& machine_;
  int threads_ = 1;
  PagePool pool_;
  double read_rate_ = 0;
  std::vector<Row> rows_;
};

nlohmann::json row_json(const Row& row) {
  const BenchWork work = work_of(row.problem);
  nlohmann::json json = {{"heads", row.problem.heads},
                         {"q_len", row.problem.q_len},
                         {"batch", row.problem.batch},
                         {"padded", row.problem.padded},
                         {"len", row.problem.len},
                         {"cache", to_string(row.problem.cache)},
                         {"lengths", row.problem.varied ? "varied" : "equal"},
                         {"mean_len", static_cast<double>(work.tokens) / row.problem.batch},
                         {"input_sets", num_input_sets(row.problem)},
                         {"backend", row.backend},
                         {"protocol", to_string(row.protocol)},
                         {"us", 1e6 * row.timing.seconds},
                         {"us_least_round", 1e6 * row.timing.least},
                         {"us_most_round", 1e6 * row.timing.most},
                         {"bytes_per_s", work.bytes / row.timing.seconds},
                         {"flops_per_s", work.flops / row.timing.seconds},
                         {"floor_us", 1e6 * row.floor_seconds},
                         {"share_of_floor", row.floor_seconds / row.timing.seconds},
                         {"plan_us", 1e6 * row.plan_seconds},
                         {"difference_to_first", row.difference}};
  if (row.timing.joules > 0) json["joules_per_flop"] = row.timing.joules / work.flops;
  return json;
}

void print_rows(const AttentionBench& bench, const Machine& machine) {
  fmt::print("{:>5} {:>2} {:>5} {:>6} {:>6} {:<7} {:<9} {:<10} {:>9} {:>6} {:>8} {:>9} {:>6} {:>8} {:>9}\n",
             "heads", "q", "batch", "padded", "len", "lengths", "protocol", "backend", "us", "TB/s",
             "TFLOP/s", "floor us", "share", "plan us", "diff");
  for (const Row& r : bench.rows()) {
    const BenchWork work = work_of(r.problem);
    fmt::print(
        "{:>5} {:>2} {:>5} {:>6} {:>6} {:<7} {:<9} {:<10} {:>9.2f} {:>6.3f} {:>8.2f} {:>9.2f} {:>5.1f}% "
        "{:>8.2f} "
        "{:>9.1e}\n",
        r.problem.heads, r.problem.q_len, r.problem.batch, r.problem.padded, r.problem.len,
        r.problem.varied ? "varied" : "equal", to_string(r.protocol), r.backend, 1e6 * r.timing.seconds,
        1e-12 * work.bytes / r.timing.seconds, 1e-12 * work.flops / r.timing.seconds, 1e6 * r.floor_seconds,
        100 * r.floor_seconds / r.timing.seconds, 1e6 * r.plan_seconds, r.difference);
  }
  const Bounds bounds = bench.bounds();
  fmt::print("\n{}\nread ceiling {:.3f} TB/s over {:.1f} GB of pages in random order, this run",
             machine.name(), 1e-12 * bounds.read_rate, bench.pool_gb());
  if (bounds.product_rate > 0) fmt::print("; products {:.0f} TFLOP/s", 1e-12 * bounds.product_rate);
  fmt::print(
      "\nfloor: the longer of bytes and products at these rates; diff: of outputs, to the first backend's\n");
}

Status print_json(const AttentionBench& bench, const Machine& machine) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : bench.rows()) rows.push_back(row_json(row));
  nlohmann::json ceilings = {{"machine", machine.name()},
                             {"read_bytes_per_s", bench.bounds().read_rate},
                             {"product_flops_per_s", bench.bounds().product_rate},
                             {"pool_gb", bench.pool_gb()}};
  return write_json("-", bench_envelope("attention", command_line(), std::move(ceilings), std::move(rows)));
}

Status check_flags(const AttentionFlags& flags) {
  const auto in_range = [](const char* flag, const std::vector<int>& values, int most) -> Status {
    for (const int v : values)
      if (v < 1 || v > most)
        return make_error(ErrorCode::kInvalidArgument, "{} {}; each must be from 1 to {}", flag, v, most);
    return {};
  };
  if (Status s = in_range("--heads", flags.heads, 1024); !s) return s;
  if (Status s = in_range("--q-len", flags.q_lens, 8); !s) return s;
  if (Status s = in_range("--batch", flags.batches, 4096); !s) return s;
  for (const int padded : flags.padded)
    if (padded < 0 || padded > 1 << 16)
      return make_error(ErrorCode::kInvalidArgument, "--padded {}; each must be from 0 to {}", padded,
                        1 << 16);
  if (Status s = in_range("--len", flags.lens, 1 << 20); !s) return s;
  for (const int context : flags.contexts)
    if (context < 0 || context > 1 << 20)
      return make_error(ErrorCode::kInvalidArgument, "--context {}; each must be from 0 to {}", context,
                        1 << 20);
  for (const int q_len : flags.q_lens)
    for (const int len : flags.lens)
      if (q_len > len)
        return make_error(ErrorCode::kInvalidArgument, "--q-len {} with --len {}: a query is one of the keys",
                          q_len, len);
  return {};
}

int bench_attention(const AttentionFlags& flags, const std::vector<const Backend*>& rivals) {
  if (const Status s = check_flags(flags); !s) return fail(s.error());
  if (flags.prefill)
    return bench_prompts({.heads = flags.heads,
                          .batches = flags.batches,
                          .lens = flags.lens,
                          .contexts = flags.contexts,
                          .protocols = flags.protocols,
                          .backends = flags.backends,
                          .grid = flags.grid,
                          .json = flags.json});
  if (flags.op != "decode")
    return bench_cache({.op = flags.op,
                        .kv_cache = flags.kv_cache,
                        .batches = flags.batches,
                        .lens = flags.lens,
                        .protocols = flags.protocols,
                        .json = flags.json});
  const std::unique_ptr<Machine> device = device_machine();
  if (flags.list) return print_list(flags, rivals, device != nullptr);
  const Result<std::vector<const Backend*>> backends = chosen_backends(flags, rivals, device != nullptr);
  if (!backends) return fail(backends.error());
  const bool on_device = find_home(*backends->front(), flags, device != nullptr).on_device;
  for (const Backend* b : *backends)
    if (find_home(*b, flags, device != nullptr).on_device != on_device)
      return fail(make_error(ErrorCode::kInvalidArgument,
                             "attention backends '{}' and '{}' read different memory: bench them one by one",
                             backends->front()->name(), b->name()));
  const std::unique_ptr<Machine> host = host_machine(flags.threads > 0 ? flags.threads : available_cores());
  Machine& machine = on_device ? *device : *host;
  AttentionBench bench(flags, *backends, machine);
  catch_interrupts();
  if (const Status s = bench.run(); !s) return fail(s.error());
  if (flags.json) {
    if (const Status s = print_json(bench, machine); !s) return fail(s.error());
  } else {
    print_rows(bench, machine);
  }
  for (const Row& row : bench.rows())
    if (std::isnan(row.difference))
      return fail(make_error(ErrorCode::kNonFinite, "{} left outputs unwritten or not finite at {}",
                             row.backend, to_string(row.problem)));
  if (interrupted())
    return fail(make_error(ErrorCode::kCancelled, "interrupted; {} rows were measured", bench.rows().size()));
  return kOk;
}

}  // namespace

void add_bench_attention(CLI::App& bench, Action& action, std::vector<const attention::Backend*> rivals) {
  CLI::App* command = bench.add_subcommand("attention", "Decode attention of every backend, in turns");
  auto flags = std::make_shared<AttentionFlags>();
  const auto add_list = [command](const char* name, std::vector<int>& values, const char* text) {
    command->add_option(name, values, text)->delimiter(',')->capture_default_str();
  };
  add_list("--heads", flags->heads, "Query heads, like 16,64,128");
  add_list("--q-len", flags->q_lens, "Query tokens of a request");
  add_list("--batch", flags->batches, "Requests");
  add_list("--padded", flags->padded, "Padded rows after the last request's, as a captured graph has them");
  add_list("--len", flags->lens, "Tokens in the cache of a request; with --prefill, new tokens");
  add_list("--context", flags->contexts, "With --prefill: tokens before the new ones");
  command->add_flag("--prefill", flags->prefill, "Prompts over projected keys and values, 192/128, causal");
  command->add_option("--lengths", flags->lengths, "All equal, or varied around --len")
      ->check(CLI::IsMember({"equal", "varied"}))
      ->capture_default_str();
  command
      ->add_option("--op", flags->op, "decode; cache-write, gather: --len tokens of each of --batch requests")
      ->check(CLI::IsMember({"decode", "cache-write", "gather"}))
      ->capture_default_str();
  command->add_option("--kv-cache", flags->kv_cache, "bf16, fp8 (576 bytes a token), fp8-656")
      ->check(CLI::IsMember({"bf16", "fp8", "fp8-656"}))
      ->capture_default_str();
  command->add_option("--protocol", flags->protocols, "burst, warm, sustained: see below")
      ->delimiter(',')
      ->check(CLI::IsMember({"burst", "warm", "sustained"}))
      ->capture_default_str();
  command
      ->add_option("--attention-backend,--backend", flags->backends,
                   "Only these, like cuda_sm90,cuda_sm80; else all that run here but the reference")
      ->delimiter(',');
  command
      ->add_option("--pool-gb", flags->pool_gb,
                   "Cache pages to draw from; 0: 14 on a GPU, what one pass needs on the CPU")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "CPU threads; 0: the cores of this process")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->add_flag("--grid", flags->grid, "The cases by which the GPU backends are judged");
  command->add_flag("--list", flags->list, "Every backend, and why one cannot run here");
  command->add_flag("--json", flags->json, "Print {schema, commit, device, date, command, ceilings, rows}");
  command->footer(
      "Absorbed form, latent 512, rope 64, pages of 64 tokens in random order, bf16, N(0, 1); input sets "
      "rotate, so that a pass over them reads 1 GB where 200 sets do.\n"
      "burst: 0.2 s of rest, 12 calls back to back, median of calls 2 to 12, median of 3 repeats. warm: "
      "passes over the sets (a CUDA graph on a GPU), 20 ms before and 80 ms measured. sustained: the same "
      "for "
      "1.5 s and 1.5 s. Plan time is the host's, apart.");
  command->callback([flags, rivals = std::move(rivals), &action] {
    action = [flags, rivals] { return bench_attention(*flags, rivals); };
  });
}

}  // namespace latent::cli
