// SPDX-License-Identifier: Apache-2.0
// A warp a row, four columns a lane; as fast as memory is.
#include <algorithm>
#include <cmath>

#include "attention/backends/cuda_common/merge_kernel.h"
#include "attention/backends/cuda_common/numbers.cuh"
#include "device/cuda_check.h"

namespace latent::attention::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 16;

__device__ int64_t place(const MergeRows& rows, int64_t token, int64_t head) {
  return token * rows.token_stride + head * rows.head_stride;
}

// The share of each state in the merge; a state of share 0 is never multiplied, since 0 x NaN is NaN.
struct Shares {
  float a, b, lse;
};

__device__ Shares weigh(float lse_a, float lse_b) {
  if (lse_b == -INFINITY) return {lse_a == -INFINITY ? 0.0f : 1.0f, 0.0f, lse_a};
  if (lse_a == -INFINITY) return {0.0f, 1.0f, lse_b};
  const float largest = fmaxf(lse_a, lse_b);
  const float a = expf(lse_a - largest), b = expf(lse_b - largest), sum = a + b;
  return {a / sum, b / sum, largest + logf(sum)};
}

__device__ float4 times(float share, const float4* x) {
  if (share == 0.0f) return {0, 0, 0, 0};
  const float4 v = *x;
  return {share * v.x, share * v.y, share * v.z, share * v.w};
}

template <class To>
__device__ void store(To* to, const float4& x) {
  *reinterpret_cast<uint2*>(to) = make_uint2(pack<To>(x.x, x.y), pack<To>(x.z, x.w));
}
template <>
__device__ void store<float>(float* to, const float4& x) {
  *reinterpret_cast<float4*>(to) = x;
}

template <class To>
__global__ void merge_kernel(const MergeArgs m) {
  const int lane = threadIdx.x % 32;
  const int64_t warps = int64_t{gridDim.x} * (kThreads / 32);
  for (int64_t row = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32; row < m.rows; row += warps) {
    const int64_t token = row / m.heads, head = row % m.heads;
    float* lse_a = static_cast<float*>(m.lse_a.data) + place(m.lse_a, token, head);
    const Shares shares = weigh(*lse_a, static_cast<const float*>(m.lse_b.data)[place(m.lse_b, token, head)]);
    const float* a = static_cast<const float*>(m.out_a.data) + place(m.out_a, token, head);
    const float* b = static_cast<const float*>(m.out_b.data) + place(m.out_b, token, head);
    To* to = static_cast<To*>(m.to.data) + place(m.to, token, head);
    for (int i = lane * 4; i < m.width; i += 128) {
      const float4 x = times(shares.a, reinterpret_cast<const float4*>(a + i));
      const float4 y = times(shares.b, reinterpret_cast<const float4*>(b + i));
      store(to + i, {x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w});
    }
    __syncwarp();  // every lane has read the LSE
    if (lane == 0) *lse_a = shares.lse;
  }
}

template <class To>
void launch(const MergeArgs& args, void* stream) {
  const int64_t blocks = std::min(kMostBlocks, (args.rows + kThreads / 32 - 1) / (kThreads / 32));
  merge_kernel<To><<<static_cast<unsigned>(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(args);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void launch_merge(const MergeArgs& args, DType to, void* stream) {
  if (to == DType::kF32)
    launch<float>(args, stream);
  else if (to == DType::kF16)
    launch<__half>(args, stream);
  else
    launch<__nv_bfloat16>(args, stream);
}

}  // namespace latent::attention::cuda
