// SPDX-License-Identifier: Apache-2.0
// A thread takes 8 columns of a row: neighbours read and write neighbouring bytes.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/backends/cuda_cache/cache_kernels.h"
#include "attention/backends/cuda_common/codes.cuh"
#include "attention/backends/cuda_common/numbers.cuh"
#include "device/cuda_check.h"

namespace latent::attention::cuda {
namespace {

constexpr int kThreads = 256;  // at least as many as a row has chunks
static_assert((kMaxCacheRank + kMaxCacheRope) / 8 <= kThreads);

// The request that row `row` of the output belongs to: the last whose first row is not after it.
__device__ int find_request(const CacheGatherArgs& a, int row) {
  int low = 0, high = a.num_seqs;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (a.out_starts[middle * a.out_starts_stride] <= row)
      low = middle;
    else
      high = middle;
  }
  return low;
}

__device__ void load_codes(const unsigned char* from, float scale, float (&x)[8]) {
  const uint2 codes = *reinterpret_cast<const uint2*>(from);
  const float2 pairs[] = {decode2_float<0>(codes.x), decode2_float<1>(codes.x), decode2_float<0>(codes.y),
                          decode2_float<1>(codes.y)};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = __fmul_rn(pairs[i].x, scale);
    x[2 * i + 1] = __fmul_rn(pairs[i].y, scale);
  }
}

template <class T>
__device__ void load_wide(const unsigned char* from, float (&x)[8]) {
  uint2 words[2] = {reinterpret_cast<const uint2*>(from)[0], reinterpret_cast<const uint2*>(from)[1]};
  const T* elements = reinterpret_cast<const T*>(words);
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = to_float(elements[i]);
}

__device__ void load(const CachePages& cache, const unsigned char* row, int column, float (&x)[8]) {
  const bool is_rope = column >= cache.kv_rank;
  switch (cache.dtype) {
    case DType::kF8E4M3:
      return load_codes(row + column, cache.scale, x);
    case DType::kU8:
      if (is_rope)
        return load_wide<__nv_bfloat16>(
            row + cache.kv_rank + cache.kv_rank / 128 * 4 + (column - cache.kv_rank) * 2, x);
      return load_codes(row + column, *reinterpret_cast<const float*>(row + cache.kv_rank + column / 128 * 4),
                        x);
    case DType::kF16:
      return load_wide<__half>(row + column * 2, x);
    default:
      return load_wide<__nv_bfloat16>(row + column * 2, x);
  }
}

__device__ void store(float* to, const float (&x)[8]) {
  reinterpret_cast<float4*>(to)[0] = make_float4(x[0], x[1], x[2], x[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(x[4], x[5], x[6], x[7]);
}
template <class T>
__device__ void store(T* to, const float (&x)[8]) {
  *reinterpret_cast<uint4*>(to) =
      make_uint4(pack<T>(x[0], x[1]), pack<T>(x[2], x[3]), pack<T>(x[4], x[5]), pack<T>(x[6], x[7]));
}

template <class Out>
__global__ void __launch_bounds__(kThreads)
    cache_gather_kernel(const __grid_constant__ CacheGatherArgs a, int chunks, int rows_at_once) {
  const int local = static_cast<int>(threadIdx.x) / chunks, chunk = static_cast<int>(threadIdx.x) % chunks;
  const int row = static_cast<int>(blockIdx.x) * rows_at_once + local;
  if (local >= rows_at_once || row >= a.num_rows) return;
  const CachePages& cache = a.cache;
  float x[8] = {};
  if (a.num_seqs > 0 && row < a.out_starts[a.num_seqs * a.out_starts_stride]) {
    const int seq = find_request(a, row);
    const int first = a.starts == nullptr ? 0 : a.starts[seq * a.starts_stride];
    const int token = first + row - a.out_starts[seq * a.out_starts_stride];
    const int column = token / cache.page_tokens;
    const int page = token >= 0 && column < a.max_pages ? a.block_table[seq * a.table_stride + column] : -1;
    if (page >= 0 && page < cache.num_pages) {
      load(cache,
           cache.data + page * cache.page_bytes + (token - column * cache.page_tokens) * cache.row_bytes,
           chunk * 8, x);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = NAN;
    }
  }
  store(static_cast<Out*>(a.out) + row * a.out_stride + chunk * 8, x);
}

template <class Out>
void launch(const CacheGatherArgs& args, void* stream) {
  const int chunks = (args.cache.kv_rank + args.cache.rope_dim) / 8, rows_at_once = kThreads / chunks;
  const auto blocks = static_cast<unsigned>((args.num_rows + rows_at_once - 1) / rows_at_once);
  cache_gather_kernel<Out>
      <<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(args, chunks, rows_at_once);
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void launch_cache_gather(const CacheGatherArgs& args, void* stream) {
  if (args.out_dtype == DType::kF32) return launch<float>(args, stream);
  if (args.out_dtype == DType::kF16) return launch<__half>(args, stream);
  launch<__nv_bfloat16>(args, stream);
}

}  // namespace latent::attention::cuda
