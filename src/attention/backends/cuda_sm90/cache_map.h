// SPDX-License-Identifier: Apache-2.0
// The description of a paged cache that the copy engine reads.
#pragma once

#include <cuda.h>

#include "attention/backends/cuda_common/decode_params.h"
#include "tensor/dtype.h"

namespace latent::attention::cuda {

struct CacheShape {
  DType dtype;
  int num_pages;
  int width;       // columns of a cached token
  int box_tokens;  // tokens a copy brings, within one page
  // Of rows of codes: bytes from row to row in shared memory. 0 of other caches.
  int code_stride = 0;
};

// Boxes of 64 columns by box_tokens tokens of one page, coordinates (column, token in the page, page), rows
// of 128 bytes in shared memory under the 128-byte swizzle; columns past the width arrive as zeros. Codes:
// boxes of whole rows, code_stride bytes each, in words.
CUtensorMap make_cache_map(const DecodeParams& params, const CacheShape& shape);

}  // namespace latent::attention::cuda
