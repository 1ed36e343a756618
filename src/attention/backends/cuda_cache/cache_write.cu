// SPDX-License-Identifier: Apache-2.0
// One warp a token: its lanes hold the latent in chunks of 8 columns, sum its squares, and store chunk by
// chunk; the first lanes rotate the shared key, a chunk each. 16 lanes share the scale of 128 columns.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cfloat>

#include "attention/backends/cuda_cache/cache_kernels.h"
#include "attention/backends/cuda_common/codes.cuh"
#include "attention/backends/cuda_common/numbers.cuh"
#include "device/cuda_check.h"

namespace latent::attention::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kMaxChunks = kMaxCacheRank / 8 / 32;  // a lane

template <class T>
struct alignas(16) Chunk {
  T x[8];
};

template <class T>
__device__ void load_chunk(const T* from, float (&x)[8]) {
  const Chunk<T> c = *reinterpret_cast<const Chunk<T>*>(from);
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = to_float(c.x[i]);
}

template <class T>
__device__ float rounded(float x) {
  return to_float(from_float<T>(x));
}

// x / sqrt(mean of squares + eps) * weight, rounded to T. Lanes past the last chunk hold zeros.
template <class T>
__device__ void normalise(const CacheWriteArgs& a, int lane, float (&x)[kMaxChunks][8]) {
  float sum = 0;
#pragma unroll
  for (int c = 0; c < kMaxChunks; ++c)
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(x[c][i], x[c][i], sum);
#pragma unroll
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
  const float factor = 1.0f / sqrtf(sum / static_cast<float>(a.cache.kv_rank) + a.eps);
#pragma unroll
  for (int c = 0; c < kMaxChunks; ++c) {
    const int first = (c * 32 + lane) * 8;
    if (first >= a.cache.kv_rank) break;
    float weight[8];
    if (a.weight_is_f32) {
#pragma unroll
      for (int i = 0; i < 8; ++i) weight[i] = static_cast<const float*>(a.norm_weight)[first + i];
    } else {
      load_chunk(static_cast<const T*>(a.norm_weight) + first, weight);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) x[c][i] = rounded<T>(x[c][i] * factor * weight[i]);
  }
}

// Chunk `chunk` of the token's rope key, rotated and rounded to T. Products are rounded one by one, as on a
// CPU.
template <class T>
__device__ void rotate(const CacheWriteArgs& a, int64_t token, int chunk, float (&x)[8]) {
  const T* k_pe = static_cast<const T*>(a.k_pe) + token * a.k_pe_stride;
  load_chunk(k_pe + chunk * 8, x);
  if (a.positions == nullptr) return;
  const int position = a.positions[token * a.positions_stride], half = a.cache.rope_dim / 2;
  const bool known = position >= 0 && position < a.max_positions;
  const float* cosines = a.cos_sin + (known ? position : 0) * a.cos_sin_stride;
  float own[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) own[i] = x[i];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int column = chunk * 8 + i;
    const bool is_first = a.rotates_halves ? column < half : i % 2 == 0;
    const int pair = a.rotates_halves ? (is_first ? column : column - half) : column / 2;
    const float other =
        a.rotates_halves ? to_float(k_pe[is_first ? column + half : column - half]) : own[i ^ 1];
    const float cosine = known ? cosines[pair] : NAN, sine = known ? cosines[half + pair] : NAN;
    const float mine = __fmul_rn(own[i], cosine), theirs = __fmul_rn(other, sine);
    x[i] = rounded<T>(is_first ? __fsub_rn(mine, theirs) : __fadd_rn(mine, theirs));
  }
}

template <class T>
__device__ void store_wide(unsigned char* to, const float (&x)[8]) {
  Chunk<T> c;
#pragma unroll
  for (int i = 0; i < 8; ++i) c.x[i] = from_float<T>(x[i]);  // exact: x was rounded to T
  const uint4 words = *reinterpret_cast<const uint4*>(&c);
  if (reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    *reinterpret_cast<uint4*>(to) = words;
  } else {  // the rope key behind an odd number of scale pairs
    reinterpret_cast<uint2*>(to)[0] = make_uint2(words.x, words.y);
    reinterpret_cast<uint2*>(to)[1] = make_uint2(words.z, words.w);
  }
}

__device__ void store_codes(unsigned char* to, const float (&x)[8], float scale) {
  uint2 codes;
  codes.x = encode4(x[0], x[1], x[2], x[3], scale);
  codes.y = encode4(x[4], x[5], x[6], x[7], scale);
  *reinterpret_cast<uint2*>(to) = codes;
}

// The scale of the 16 lanes that hold 128 columns.
__device__ float block_scale(const float (&x)[8]) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (isfinite(x[i])) largest = fmaxf(largest, fabsf(x[i]));
#pragma unroll
  for (int d = 8; d > 0; d /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, d));
  return fmaxf(__fdiv_rn(largest, kLargestCode), FLT_MIN);
}

template <class T, DType kCache>
__global__ void __launch_bounds__(kWarps * 32) cache_write_kernel(const __grid_constant__ CacheWriteArgs a) {
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (token >= a.num_tokens) return;
  const CachePages& cache = a.cache;
  const int slot = a.slots[token * a.slots_stride];
  const int page = slot / cache.page_tokens;
  if (slot < 0 || page >= cache.num_pages) return;
  unsigned char* row =
      cache.data + page * cache.page_bytes + (slot - page * cache.page_tokens) * cache.row_bytes;
  const T* kv_c = static_cast<const T*>(a.kv_c) + token * a.kv_c_stride;
  float x[kMaxChunks][8] = {};
#pragma unroll
  for (int c = 0; c < kMaxChunks; ++c)
    if ((c * 32 + lane) * 8 < cache.kv_rank) load_chunk(kv_c + (c * 32 + lane) * 8, x[c]);
  if (a.norm_weight != nullptr) normalise<T>(a, lane, x);
#pragma unroll
  for (int c = 0; c < kMaxChunks; ++c) {
    if (c * 32 * 8 >= cache.kv_rank) break;
    const int chunk = c * 32 + lane;
    float scale = cache.scale;
    if constexpr (kCache == DType::kU8) scale = block_scale(x[c]);
    if (chunk * 8 >= cache.kv_rank) break;
    if constexpr (kCache == DType::kU8)
      if (lane % 16 == 0) *reinterpret_cast<float*>(row + cache.kv_rank + chunk / 16 * 4) = scale;
    if constexpr (kCache == DType::kU8 || kCache == DType::kF8E4M3)
      store_codes(row + chunk * 8, x[c], scale);
    else
      store_wide<T>(row + chunk * 16, x[c]);
  }
  if (lane * 8 >= cache.rope_dim) return;
  float key[8];
  rotate<T>(a, token, lane, key);
  if constexpr (kCache == DType::kU8)
    store_wide<T>(row + cache.kv_rank + cache.kv_rank / 128 * 4 + lane * 16, key);
  else if constexpr (kCache == DType::kF8E4M3)
    store_codes(row + cache.kv_rank + lane * 8, key, cache.scale);
  else
    store_wide<T>(row + cache.kv_rank * 2 + lane * 16, key);
}

template <class T, DType kCache>
void launch(const CacheWriteArgs& args, void* stream) {
  const auto blocks = static_cast<unsigned>((args.num_tokens + kWarps - 1) / kWarps);
  cache_write_kernel<T, kCache><<<blocks, kWarps * 32, 0, static_cast<cudaStream_t>(stream)>>>(args);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void launch_cache_write(const CacheWriteArgs& args, DType dtype, void* stream) {
  const bool is_bf16 = dtype == DType::kBF16;
  if (args.cache.dtype == DType::kU8) return launch<__nv_bfloat16, DType::kU8>(args, stream);
  if (args.cache.dtype == DType::kF8E4M3)
    return is_bf16 ? launch<__nv_bfloat16, DType::kF8E4M3>(args, stream)
                   : launch<__half, DType::kF8E4M3>(args, stream);
  return is_bf16 ? launch<__nv_bfloat16, DType::kBF16>(args, stream)
                 : launch<__half, DType::kF16>(args, stream);
}

}  // namespace latent::attention::cuda
