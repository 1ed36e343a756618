// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_sm90/cache_map.h"

#include <cuda_runtime.h>

#include "attention/backends/cuda_sm90/encode_tiled.h"
#include "base/check.h"
#include "device/cuda_check.h"

namespace latent::attention::cuda {

PFN_cuTensorMapEncodeTiled_v12000 encode_tiled() {
  static const auto function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                                &result));
    CHECK(result == cudaDriverEntryPointSuccess,
          "the driver has no cuTensorMapEncodeTiled; CUDA 12.0 or later is needed");
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
  }();
  return function;
}

CUtensorMap make_cache_map(const DecodeParams& params, const CacheShape& shape) {
  const bool codes = shape.code_stride > 0;
  const auto element = static_cast<cuuint64_t>(dtype_bytes(shape.dtype));
  const cuuint64_t dims[] = {static_cast<cuuint64_t>(codes ? shape.width / 4 : shape.width),
                             static_cast<cuuint64_t>(params.page_tokens),
                             static_cast<cuuint64_t>(shape.num_pages)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(params.cache_row_stride) * element,
                                static_cast<cuuint64_t>(params.cache_page_stride) * element};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(codes ? shape.code_stride / 4 : 64),
                            static_cast<cuuint32_t>(shape.box_tokens), 1};
  const cuuint32_t steps[] = {1, 1, 1};
  const CUtensorMapDataType type = codes                         ? CU_TENSOR_MAP_DATA_TYPE_UINT32
                                   : shape.dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                                 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  CUtensorMap map;
  const CUresult result = encode_tiled()(
      &map, type, 3, const_cast<void*>(params.cache), dims, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, codes ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK(result == CUDA_SUCCESS,
        "the copy engine refuses a cache of {} pages, {} tokens of {} columns, strides {} and {} (driver "
        "error {})",
        dims[2], dims[1], dims[0], strides[1], strides[0], static_cast<int>(result));
  return map;
}

}  // namespace latent::attention::cuda
