// SPDX-License-Identifier: Apache-2.0
#include "cli/attention_bench/measure.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "tensor/float_types.h"

namespace latent::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBurstCalls = 12, kBurstRepeats = 3, kWarmRounds = 2, kPlanRepeats = 15;
constexpr BenchWindow kWarmWindow{.warm_up = 0.02, .measured = 0.08};
constexpr BenchWindow kSustainedWindow{.warm_up = 1.5, .measured = 1.5};

constexpr std::array<const char*, 3> kProtocolNames = {"burst", "warm", "sustained"};

double median_plan_seconds(const attention::Backend& backend, const InputSets& in,
                           const attention::Limits& limits, attention::Plan* plan) {
  std::vector<double> seconds;
  for (int i = 0; i < kPlanRepeats; ++i) {
    const Clock::time_point start = Clock::now();
    backend.plan(in.desc(), limits, in.lengths(), plan);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return median(seconds);
}

// Out and, as one more column of a row, LSE.
std::vector<float> outputs_of(Machine& machine, const InputSets& in, const Contestant& who) {
  const ops::MlaAttentionParams& p = in.params(0);
  const int64_t rows = p.lse.num_elements(), width = p.out.dim(2);
  std::vector<BFloat16> out(static_cast<size_t>(rows * width), BFloat16::from_float(NAN));
  std::vector<float> lse(static_cast<size_t>(rows), NAN);
  auto* device_out = static_cast<std::byte*>(p.out.raw());
  auto* device_lse = static_cast<std::byte*>(p.lse.raw());
  const size_t out_bytes = out.size() * sizeof out[0], lse_bytes = lse.size() * sizeof lse[0];
  machine.copy_in(device_out, out.data(), out_bytes);
  machine.copy_in(device_lse, lse.data(), lse_bytes);
  who.call(in)(0, nullptr);
  machine.copy_out(out.data(), device_out, out_bytes);
  machine.copy_out(lse.data(), device_lse, lse_bytes);
  std::vector<float> all(std::move(lse));
  for (const BFloat16 x : out) all.push_back(x.to_float());
  return all;
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

std::optional<Protocol> parse_protocol(std::string_view name) {
  for (size_t i = 0; i < kProtocolNames.size(); ++i)
    if (name == kProtocolNames[i]) return static_cast<Protocol>(i);
  return std::nullopt;
}

const char* to_string(Protocol protocol) { return kProtocolNames[static_cast<size_t>(protocol)]; }

Result<Contestant> Contestant::create(Machine& machine, const InputSets& inputs,
                                      const attention::Backend& backend, int num_threads) {
  Contestant c;
  c.backend_ = &backend;
  c.num_threads_ = num_threads;
  const attention::Limits limits = inputs.limits(num_threads);
  c.workspace_bytes_ = backend.workspace_bytes(inputs.desc(), limits);
  Result<std::shared_ptr<std::byte>> memory = machine.allocate(c.workspace_bytes_);
  if (!memory) return memory.error();
  c.workspace_ = *std::move(memory);
  backend.reserve_plan(inputs.desc(), limits, &c.plan_);
  c.plan_seconds_ = median_plan_seconds(backend, inputs, limits, &c.plan_);
  return c;
}

BenchCall Contestant::call(const InputSets& inputs) const {
  return [this, &inputs](int64_t index, void* stream) {
    backend_->run(
        inputs.params(index), plan_,
        {.num_threads = num_threads_, .workspace = {workspace_.get(), workspace_bytes_}, .stream = stream});
  };
}

std::vector<Timing> measure(Machine& machine, const std::vector<BenchCall>& calls, int num_sets,
                            Protocol protocol) {
  const size_t n = calls.size();
  std::vector<std::vector<double>> rounds(n);
  std::vector<Timing> timings(n);
  int64_t next_set = 0;
  const int count = protocol == Protocol::kBurst  ? kBurstRepeats
                    : protocol == Protocol::kWarm ? kWarmRounds
                                                  : 1;
  for (int round = 0; round < count; ++round)
    for (size_t i = 0; i < n; ++i) {
      const size_t who = round % 2 == 0 ? i : n - 1 - i;
      const BenchCall& call = calls[who];
      if (protocol == Protocol::kBurst) {
        std::vector<double> seconds = machine.burst(call, next_set, kBurstCalls);
        next_set += kBurstCalls;
        seconds.erase(seconds.begin());
        rounds[who].push_back(median(seconds));
      } else {
        const BenchWindow& window = protocol == Protocol::kWarm ? kWarmWindow : kSustainedWindow;
        const Replays replays = machine.replay(call, num_sets, window);
        rounds[who].push_back(median(replays.seconds));
        timings[who].joules = replays.joules;
      }
    }
  for (size_t i = 0; i < n; ++i) {
    const auto [least, most] = std::minmax_element(rounds[i].begin(), rounds[i].end());
    timings[i].least = *least;
    timings[i].most = *most;
    timings[i].seconds = median(rounds[i]);
  }
  return timings;
}

double difference(Machine& machine, const InputSets& inputs, const Contestant& a, const Contestant& b) {
  const std::vector<float> got = outputs_of(machine, inputs, a), want = outputs_of(machine, inputs, b);
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(want[i]) && got[i] == want[i]) continue;  // the LSE of a row without keys
    error += std::pow(double{got[i]} - want[i], 2);
    norm += std::pow(double{want[i]}, 2);
  }
  return std::sqrt(error / norm);
}

}  // namespace latent::cli
