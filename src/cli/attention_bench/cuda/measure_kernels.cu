// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>

#include <numeric>

#include "cli/attention_bench/cuda/measure_kernels.h"
#include "device/cuda_check.h"

namespace latent::cli {
namespace {

constexpr int kThreads = 256;
constexpr int kReadCtasPerSm = 2;
constexpr int kStages = 5;  // half pages of 36 KB in flight a multiprocessor

__device__ uint64_t now_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

__global__ void delay_kernel(int64_t nanoseconds) {
  const uint64_t end = now_ns() + static_cast<uint64_t>(nanoseconds);
  while (now_ns() < end) __nanosleep(1000);
}

__device__ uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Two numbers of one hash (Box and Muller).
__global__ void fill_normal_kernel(__nv_bfloat16* data, int64_t count, uint64_t seed) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t pair = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; 2 * pair < count; pair += stride) {
    const uint64_t bits = mix(mix(seed) + static_cast<uint64_t>(pair) * 0x9E3779B97F4A7C15ull);
    const float u = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;
    const float v = static_cast<float>(bits & 0xFFFFFF) * 0x1p-24f;
    const float radius = sqrtf(-2.0f * logf(u));
    float sine, cosine;
    sincospif(2.0f * v, &sine, &cosine);
    data[2 * pair] = __float2bfloat16(radius * cosine);
    if (2 * pair + 1 < count) data[2 * pair + 1] = __float2bfloat16(radius * sine);
  }
}

// index -> index * step modulo n is a permutation, as step and n have no common factor.
struct Order {
  int64_t n, step;
  __device__ int64_t page(int64_t index) const { return index * step % n; }
};

__global__ void read_loads_kernel(const uint4* pages, Order order, int64_t page_words, uint32_t* sink) {
  uint32_t x = 0;
  for (int64_t i = blockIdx.x; i < order.n; i += gridDim.x) {
    const uint4* page = pages + order.page(i) * page_words;
#pragma unroll 6
    for (int64_t w = threadIdx.x; w < page_words; w += kThreads) {
      const uint4 v = __ldcs(page + w);
      x ^= v.x ^ v.y ^ v.z ^ v.w;
    }
  }
  if (x == 0x12345678u) *sink = x;  // never, but the compiler cannot know
}

__device__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__global__ void read_bulk_kernel(const char* pages, Order order, int64_t half_bytes) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char stages[];
  __shared__ uint64_t arrived[kStages];
  const int64_t pages_here = (order.n - blockIdx.x + gridDim.x - 1) / gridDim.x;
  for (int s = 0; s < kStages; ++s)
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(&arrived[s])) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  const auto issue = [&](int64_t half) {
    const int stage = static_cast<int>(half % kStages);
    const char* from =
        pages + order.page(blockIdx.x + half / 2 * gridDim.x) * 2 * half_bytes + half % 2 * half_bytes;
    const uint32_t barrier = shared_address(&arrived[stage]), bytes = static_cast<uint32_t>(half_bytes);
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(stages + stage * half_bytes)),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
  };
  const auto wait = [&](int64_t half) {
    const uint32_t barrier = shared_address(&arrived[half % kStages]);
    const auto parity = static_cast<uint32_t>(half / kStages % 2);
    uint32_t done = 0;
    while (done == 0)
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                   : "=r"(done)
                   : "r"(barrier), "r"(parity)
                   : "memory");
  };
  for (int64_t half = 0; half < kStages && half < 2 * pages_here; ++half) issue(half);
  for (int64_t half = 0; half < 2 * pages_here; ++half) {
    wait(half);
    if (half + kStages < 2 * pages_here) issue(half + kStages);
  }
#endif
}

Order random_order(int64_t n) {
  int64_t step = n > 2 ? static_cast<int64_t>(static_cast<double>(n) * 0.6180339887) : 1;
  while (std::gcd(step, n) != 1) ++step;
  return {n, step};
}

}  // namespace

void launch_delay(int64_t nanoseconds, void* stream) {
  delay_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(nanoseconds);
  CUDA_CHECK(cudaGetLastError());
}

void launch_fill_normal(void* data, int64_t count, uint64_t seed, void* stream) {
  fill_normal_kernel<<<4096, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<__nv_bfloat16*>(data), count, seed);
  CUDA_CHECK(cudaGetLastError());
}

void launch_read(ReadForm form, const void* pages, int64_t num_pages, int64_t page_bytes, int num_sms,
                 uint32_t* sink, void* stream) {
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  const Order order = random_order(num_pages);
  if (form == ReadForm::kLoads) {
    read_loads_kernel<<<num_sms * kReadCtasPerSm, kThreads, 0, cuda_stream>>>(
        static_cast<const uint4*>(pages), order, page_bytes / 16, sink);
  } else {
    const int shared = static_cast<int>(kStages * (page_bytes / 2));
    CUDA_CHECK(cudaFuncSetAttribute(read_bulk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    read_bulk_kernel<<<num_sms, 1, shared, cuda_stream>>>(static_cast<const char*>(pages), order,
                                                          page_bytes / 2);
  }
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace latent::cli
