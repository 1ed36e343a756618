// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <thread>

#include "cli/attention_bench/cuda/board_energy.h"
#include "cli/attention_bench/cuda/measure_kernels.h"
#include "cli/attention_bench/machine.h"
#include "cli/attention_bench/measure.h"
#include "device/cuda_buffer.h"
#include "device/cuda_check.h"

namespace latent::cli {
namespace {

constexpr std::chrono::milliseconds kRest(200);
constexpr int64_t kDelayNs = 1'500'000;  // longer than the host needs to enqueue a dozen calls
constexpr int kLeastPasses = 12, kMostPasses = 5000, kReadPasses = 7;
// wgmma alone on an H200, in a burst: the chip's own limit by power, below its datasheet's.
constexpr double kHopperProductRate = 926e12;

class Event {
 public:
  Event() { CUDA_CHECK(cudaEventCreate(&event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { CUDA_CHECK(cudaEventDestroy(event_)); }
  void record(cudaStream_t stream) { CUDA_CHECK(cudaEventRecord(event_, stream)); }
  double seconds_since(const Event& start) const {
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start.event_, event_));
    return 1e-3 * milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// The calls [0, num_calls) as one graph.
class Graph {
 public:
  Graph(const BenchCall& call, int num_calls, cudaStream_t stream) {
    CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < num_calls; ++i) call(i, stream);
    cudaGraph_t graph = nullptr;
    CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&exec_, graph, 0));
    CUDA_CHECK(cudaGraphDestroy(graph));
    CUDA_CHECK(cudaGraphUpload(exec_, stream));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { CUDA_CHECK(cudaGraphExecDestroy(exec_)); }
  void launch(cudaStream_t stream) const { CUDA_CHECK(cudaGraphLaunch(exec_, stream)); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

class CudaMachine final : public Machine {
 public:
  explicit CudaMachine(int device) : device_(device) {
    CUDA_CHECK(cudaGetDeviceProperties(&properties_, device));
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~CudaMachine() override { CUDA_CHECK(cudaStreamDestroy(stream_)); }

  std::string name() const override {
    int driver = 0, runtime = 0;
    CUDA_CHECK(cudaDriverGetVersion(&driver));
    CUDA_CHECK(cudaRuntimeGetVersion(&runtime));
    return fmt::format("{}, {} multiprocessors, compute capability {}.{}, CUDA {}.{} (driver's {}.{})",
                       properties_.name, properties_.multiProcessorCount, properties_.major,
                       properties_.minor, runtime / 1000, runtime % 100 / 10, driver / 1000,
                       driver % 100 / 10);
  }
  bool is_device() const override { return true; }
  size_t cache_bytes() const override { return static_cast<size_t>(properties_.l2CacheSize); }
  size_t memory_bytes() const override {
    size_t free = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return free;
  }
  double product_rate() const override { return properties_.major == 9 ? kHopperProductRate : 0; }

  Result<std::shared_ptr<std::byte>> allocate(size_t num_bytes) override {
    Result<CudaBuffer> buffer = CudaBuffer::create(num_bytes);
    if (!buffer) return buffer.error();
    auto owner = std::make_shared<CudaBuffer>(*std::move(buffer));
    return std::shared_ptr<std::byte>(owner, owner->data());
  }
  void fill_normal(std::byte* data, int64_t count, uint64_t seed) override {
    launch_fill_normal(data, count, seed, stream_);
    CUDA_CHECK(cudaStreamSynchronize(stream_));
  }
  // Whatever still runs, on any stream, comes first.
  void copy_in(std::byte* to, const void* from, size_t num_bytes) override {
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaMemcpy(to, from, num_bytes, cudaMemcpyHostToDevice));
  }
  void copy_out(void* to, const std::byte* from, size_t num_bytes) override {
    CUDA_CHECK(cudaDeviceSynchronize());
    CUDA_CHECK(cudaMemcpy(to, from, num_bytes, cudaMemcpyDeviceToHost));
  }

  std::vector<double> burst(const BenchCall& call, int64_t first, int count) override {
    std::vector<Event> events(static_cast<size_t>(count) + 1);
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    std::this_thread::sleep_for(kRest);
    launch_delay(kDelayNs, stream_);
    events[0].record(stream_);
    for (int i = 0; i < count; ++i) {
      call(first + i, stream_);
      events[static_cast<size_t>(i) + 1].record(stream_);
    }
    return intervals(events);
  }

  Replays replay(const BenchCall& call, int num_calls, const BenchWindow& window) override {
    call(0, stream_);  // kernels are loaded before the capture
    const Graph graph(call, num_calls, stream_);
    const double pass = time_pass(graph);
    const auto passes_in = [&](double seconds) {
      return std::clamp(static_cast<int>(std::ceil(seconds / pass)), 1, kMostPasses);
    };
    for (int i = passes_in(window.warm_up); i > 0; --i) graph.launch(stream_);
    std::vector<Event> events(static_cast<size_t>(std::max(kLeastPasses, passes_in(window.measured))) + 1);
    // Reading the counter of energy waits for the warm-up, a pause of some microseconds.
    const std::optional<double> before = window.measured >= 1 ? joules_now() : std::nullopt;
    events[0].record(stream_);
    for (size_t i = 1; i < events.size(); ++i) {
      graph.launch(stream_);
      events[i].record(stream_);
    }
    Replays result{.seconds = intervals(events)};
    if (before)
      result.joules =
          (*board_joules(device_) - *before) / (static_cast<double>(result.seconds.size()) * num_calls);
    for (double& s : result.seconds) s /= num_calls;
    return result;
  }

  double read_rate(const std::byte* pages, int64_t num_pages, int64_t page_bytes) override {
    const CudaBuffer sink = *CudaBuffer::create(sizeof(uint32_t));
    double best = 0;
    for (const ReadForm form : {ReadForm::kLoads, ReadForm::kBulkCopies}) {
      if (form == ReadForm::kBulkCopies && properties_.major < 9) continue;
      const BenchCall read = [&](int64_t, void* stream) {
        launch_read(form, pages, num_pages, page_bytes, properties_.multiProcessorCount,
                    reinterpret_cast<uint32_t*>(sink.data()), stream);
      };
      std::vector<double> seconds = burst(read, 0, kReadPasses);
      seconds.erase(seconds.begin());
      best = std::max(best, static_cast<double>(num_pages * page_bytes) / median(seconds));
    }
    return best;
  }

 private:
  // Waits for the last one.
  std::vector<double> intervals(const std::vector<Event>& events) {
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    std::vector<double> seconds;
    for (size_t i = 1; i < events.size(); ++i) seconds.push_back(events[i].seconds_since(events[i - 1]));
    return seconds;
  }

  double time_pass(const Graph& graph) {
    std::vector<Event> events(3);
    for (Event& event : events) {
      event.record(stream_);
      graph.launch(stream_);
    }
    return intervals(events).back();
  }

  std::optional<double> joules_now() {
    CUDA_CHECK(cudaStreamSynchronize(stream_));
    return board_joules(device_);
  }

  int device_;
  cudaDeviceProp properties_{};
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<Machine> device_machine() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || cudaFree(nullptr) != cudaSuccess) {
    cudaGetLastError();  // no driver is no failure of ours
    return nullptr;
  }
  return std::make_unique<CudaMachine>(device);
}

}  // namespace latent::cli
