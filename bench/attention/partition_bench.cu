// SPDX-License-Identifier: Apache-2.0
// What it costs that every CTA of a decode kernel finds its own stretch of the keys (partition.cuh): a grid
// that does nothing else against one that does nothing, each in a CUDA graph of its own.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "attention/backends/cuda_common/device_info.h"
#include "attention/backends/cuda_common/partition.cuh"
#include "device/cuda_check.h"

namespace latent::bench {
namespace {

using namespace attention::cuda;

// That of cuda_sm90 for few query rows.
constexpr PartitionRule kRule = {
    .tile_tokens = 64, .fixed_tiles = 2, .least_tiles = 1, .least_stretch = 2, .slack_tiles = 4};
constexpr int kThreads = 384, kLaunches = 100, kReplays = 20;

// Every warp of every CTA, as in the decode kernels. {first request, its tile, last request, its tile}
__global__ void find_kernel(const __grid_constant__ PartitionRule rule, const int32_t* kv_lens, int num_seqs,
                            int4* stretches) {
  const BatchTiles batch(kv_lens, num_seqs, rule);
  const auto parts = static_cast<int>(gridDim.x), part = static_cast<int>(blockIdx.x);
  const Line line = measure_line(batch, parts, rule);
  Cut begin{num_seqs, 0, 0}, end = begin;
  if (part < line.parts) find_stretch(batch, line, part, rule, &begin, &end);
  if (threadIdx.x == 0) stretches[part] = make_int4(begin.seq, begin.tile, end.seq, end.tile);
}

__global__ void idle_kernel(const __grid_constant__ PartitionRule, const int32_t*, int, int4* stretches) {
  if (threadIdx.x == 0) stretches[blockIdx.x] = make_int4(0, 0, 0, 0);
}

using Kernel = void (*)(PartitionRule, const int32_t*, int, int4*);

// Microseconds of one launch, the median of the replays.
double time_launches(Kernel kernel, const int32_t* kv_lens, int num_seqs, int4* stretches) {
  cudaStream_t stream;
  CUDA_CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < kLaunches; ++i)
    kernel<<<device_info().num_sms, kThreads, 0, stream>>>(kRule, kv_lens, num_seqs, stretches);
  CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec;
  CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t start, stop;
  CUDA_CHECK(cudaEventCreate(&start));
  CUDA_CHECK(cudaEventCreate(&stop));
  std::vector<double> us;
  for (int i = 0; i <= kReplays; ++i) {  // the first one warms up
    CUDA_CHECK(cudaEventRecord(start, stream));
    CUDA_CHECK(cudaGraphLaunch(exec, stream));
    CUDA_CHECK(cudaEventRecord(stop, stream));
    CUDA_CHECK(cudaEventSynchronize(stop));
    float ms;
    CUDA_CHECK(cudaEventElapsedTime(&ms, start, stop));
    if (i > 0) us.push_back(1e3 * ms / kLaunches);
  }
  CUDA_CHECK(cudaGraphExecDestroy(exec));
  CUDA_CHECK(cudaGraphDestroy(graph));
  CUDA_CHECK(cudaEventDestroy(start));
  CUDA_CHECK(cudaEventDestroy(stop));
  CUDA_CHECK(cudaStreamDestroy(stream));
  std::nth_element(us.begin(), us.begin() + kReplays / 2, us.end());
  return us[kReplays / 2];
}

std::vector<int32_t> varied_lengths(int num_seqs) {
  std::mt19937_64 engine(1);
  std::normal_distribution<double> normal(4096, 2048);
  std::vector<int32_t> lens(static_cast<size_t>(num_seqs));
  for (int32_t& len : lens) len = static_cast<int32_t>(std::clamp(normal(engine), 16.0, 8192.0));
  return lens;
}

int run() {
  if (!device_info().present) {
    std::fprintf(stderr, "error: needs an NVIDIA GPU, and the driver shows none\n");
    return 2;
  }
  int32_t* kv_lens;
  int4* stretches;
  CUDA_CHECK(cudaMalloc(&stretches, static_cast<size_t>(device_info().num_sms) * sizeof *stretches));
  std::printf("requests  finds us  idle us  difference us\n");
  for (const int num_seqs : {1, 32, 128, 512, 2048}) {
    const std::vector<int32_t> lens = varied_lengths(num_seqs);
    CUDA_CHECK(cudaMalloc(&kv_lens, lens.size() * sizeof lens[0]));
    CUDA_CHECK(cudaMemcpy(kv_lens, lens.data(), lens.size() * sizeof lens[0], cudaMemcpyHostToDevice));
    const double finds = time_launches(find_kernel, kv_lens, num_seqs, stretches);
    const double idle = time_launches(idle_kernel, kv_lens, num_seqs, stretches);
    std::printf("%8d  %8.2f  %7.2f  %13.2f\n", num_seqs, finds, idle, finds - idle);
    CUDA_CHECK(cudaFree(kv_lens));
  }
  CUDA_CHECK(cudaFree(stretches));
  return 0;
}

}  // namespace
}  // namespace latent::bench

int main() { return latent::bench::run(); }
