// SPDX-License-Identifier: Apache-2.0
// The kernel behind merge_states.h: device pointers, strides, numbers.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace latent::attention::cuda {

// [tokens, heads, .] in device memory; strides in elements.
struct MergeRows {
  void* data;
  int64_t token_stride, head_stride;
};

struct MergeArgs {
  MergeRows out_a, lse_a, out_b, lse_b, to;  // f32, but for `to`
  int64_t rows;                              // tokens x heads
  int heads, width;                          // width a multiple of 4
};

void launch_merge(const MergeArgs& args, DType to, void* stream);

}  // namespace latent::attention::cuda
