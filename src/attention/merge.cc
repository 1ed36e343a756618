// SPDX-License-Identifier: Apache-2.0
#include "attention/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"

namespace latent::attention {
namespace {

constexpr float kEmpty = -std::numeric_limits<float>::infinity();

struct RowState {
  float* out;
  int64_t stride;
  float* lse;
};

RowState row_state(const TensorView& out, const TensorView& lse, int64_t token, int64_t head) {
  return {.out = out.data<float>() + token * out.stride(0) + head * out.stride(1),
          .stride = out.stride(2),
          .lse = lse.data<float>() + token * lse.stride(0) + head * lse.stride(1)};
}

// A state of weight 0 is never multiplied: 0 x NaN is NaN.
void merge_row(const RowState& a, const RowState& b, int64_t width) {
  const float lse_a = *a.lse, lse_b = *b.lse;
  if (lse_b == kEmpty) {
    if (lse_a == kEmpty)
      for (int64_t i = 0; i < width; ++i) a.out[i * a.stride] = 0.0f;
    return;
  }
  if (lse_a == kEmpty) {
    for (int64_t i = 0; i < width; ++i) a.out[i * a.stride] = b.out[i * b.stride];
    *a.lse = lse_b;
    return;
  }
  const float largest = std::max(lse_a, lse_b);
  const float weight_a = std::exp(lse_a - largest), weight_b = std::exp(lse_b - largest);
  const float sum = weight_a + weight_b;
  const float share_a = weight_a / sum, share_b = weight_b / sum;
  for (int64_t i = 0; i < width; ++i) {
    const float from_a = share_a == 0.0f ? 0.0f : share_a * a.out[i * a.stride];
    const float from_b = share_b == 0.0f ? 0.0f : share_b * b.out[i * b.stride];
    a.out[i * a.stride] = from_a + from_b;
  }
  *a.lse = largest + std::log(sum);
}

}  // namespace

void merge_states(const ops::MergeStatesParams& p, int num_threads) {
  const int64_t num_heads = p.lse_a.dim(1), width = p.out_a.dim(2);
  parallel_ranges(num_threads, p.lse_a.dim(0) * num_heads, 1, [&](Range range) {
    for (int64_t i = range.begin; i < range.end; ++i)
      merge_row(row_state(p.out_a, p.lse_a, i / num_heads, i % num_heads),
                row_state(p.out_b, p.lse_b, i / num_heads, i % num_heads), width);
  });
}

}  // namespace latent::attention
