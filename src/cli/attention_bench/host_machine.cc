// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "base/available_memory.h"
#include "base/parallel.h"
#include "cli/attention_bench/machine.h"
#include "cli/ceilings.h"
#include "cli/version.h"
#include "device/host_buffer.h"
#include "tensor/float_types.h"

namespace latent::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRest(200);
constexpr int kLeastPasses = 12;
constexpr double kReadSeconds = 0.5;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class HostMachine final : public Machine {
 public:
  explicit HostMachine(int num_threads) : num_threads_(num_threads) {}

  std::string name() const override { return device_name(); }
  bool is_device() const override { return false; }
  size_t cache_bytes() const override {
    const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? static_cast<size_t>(bytes) : size_t{32} << 20;
  }
  size_t memory_bytes() const override { return static_cast<size_t>(available_memory_bytes()); }
  double product_rate() const override { return 0; }

  Result<std::shared_ptr<std::byte>> allocate(size_t num_bytes) override {
    if (num_bytes > memory_bytes())
      return make_error(ErrorCode::kExhausted, "{} bytes are wanted, and {} are free", num_bytes,
                        memory_bytes());
    Result<HostBuffer> buffer = HostBuffer::create(num_bytes);
    if (!buffer) return buffer.error();
    auto owner = std::make_shared<HostBuffer>(*std::move(buffer));
    return std::shared_ptr<std::byte>(owner, owner->data());
  }

  // Numbers drawn once and then picked at random: a gigabyte of logarithms would take longer than the bench.
  void fill_normal(std::byte* data, int64_t count, uint64_t seed) override {
    static const std::array<BFloat16, 1 << 16> drawn = [] {
      std::array<BFloat16, 1 << 16> values{};
      std::mt19937_64 engine(1);
      std::normal_distribution<float> normal;
      for (BFloat16& v : values) v = BFloat16::from_float(normal(engine));
      return values;
    }();
    auto* out = reinterpret_cast<BFloat16*>(data);
    parallel_ranges(num_threads_, count, 1 << 16, [&](Range range) {
      uint64_t state = seed * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(range.begin) + 1;
      for (int64_t i = range.begin; i < range.end; ++i) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        out[i] = drawn[state >> 48];
      }
    });
  }
  void copy_in(std::byte* to, const void* from, size_t num_bytes) override {
    std::memcpy(to, from, num_bytes);
  }
  void copy_out(void* to, const std::byte* from, size_t num_bytes) override {
    std::memcpy(to, from, num_bytes);
  }

  std::vector<double> burst(const BenchCall& call, int64_t first, int count) override {
    std::this_thread::sleep_for(kRest);
    std::vector<double> seconds;
    for (int i = 0; i < count; ++i) {
      const Clock::time_point start = Clock::now();
      call(first + i, nullptr);
      seconds.push_back(seconds_since(start));
    }
    return seconds;
  }

  Replays replay(const BenchCall& call, int num_calls, const BenchWindow& window) override {
    const auto pass = [&] {
      const Clock::time_point start = Clock::now();
      for (int i = 0; i < num_calls; ++i) call(i, nullptr);
      return seconds_since(start) / num_calls;
    };
    for (const Clock::time_point start = Clock::now(); seconds_since(start) < window.warm_up;) pass();
    Replays result;
    const Clock::time_point start = Clock::now();
    while (result.seconds.size() < kLeastPasses || seconds_since(start) < window.measured)
      result.seconds.push_back(pass());
    return result;
  }

  double read_rate(const std::byte* pages, int64_t num_pages, int64_t page_bytes) override {
    const auto bytes = static_cast<size_t>(num_pages * page_bytes);
    ReadCeiling ceiling({ByteRegion(pages, bytes)}, bytes, num_threads_);
    ceiling.measure_for(kReadSeconds);
    return ceiling.best_bytes_per_second();
  }

 private:
  int num_threads_;
};

}  // namespace

std::unique_ptr<Machine> host_machine(int num_threads) { return std::make_unique<HostMachine>(num_threads); }

#ifndef LATENT_CUDA
std::unique_ptr<Machine> device_machine() { return nullptr; }
#endif

}  // namespace latent::cli
