// SPDX-License-Identifier: Apache-2.0
#include "attention/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "tensor/convert.h"
#include "tensor/float_types.h"

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

// Element i of the merged row goes to `store`. A state of weight 0 is never multiplied: 0 x NaN is NaN.
template <class Store>
void merge_row(const RowState& a, const RowState& b, int64_t width, Store&& store) {
  const float lse_a = *a.lse, lse_b = *b.lse;
  float share_a = lse_a == kEmpty ? 0.0f : 1.0f, share_b = 0;
  if (lse_b != kEmpty) {
    const float largest = std::max(lse_a, lse_b);
    const float weight_a = std::exp(lse_a - largest), weight_b = std::exp(lse_b - largest);
    const float sum = weight_a + weight_b;
    share_a = weight_a / sum;
    share_b = weight_b / sum;
    *a.lse = largest + std::log(sum);
  }
  for (int64_t i = 0; i < width; ++i) {
    const float from_a = share_a == 0.0f ? 0.0f : share_a * a.out[i * a.stride];
    const float from_b = share_b == 0.0f ? 0.0f : share_b * b.out[i * b.stride];
    store(i, from_a + from_b);
  }
}

template <class To>
void merge_as(const ops::MergeStatesParams& p, const TensorView& to, int num_threads) {
  const int64_t num_heads = p.lse_a.dim(1), width = to.dim(2);
  parallel_ranges(num_threads, p.lse_a.dim(0) * num_heads, 1, [&](Range range) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      const int64_t token = row / num_heads, head = row % num_heads;
      To* at = to.data<To>() + token * to.stride(0) + head * to.stride(1);
      merge_row(row_state(p.out_a, p.lse_a, token, head), row_state(p.out_b, p.lse_b, token, head), width,
                [&](int64_t i, float x) { store_float(at + i * to.stride(2), x); });
    }
  });
}

}  // namespace

void merge_states(const ops::MergeStatesParams& p, int num_threads) {
  const TensorView& to = p.out.empty() ? p.out_a : p.out;
  if (to.dtype() == DType::kF32)
    merge_as<float>(p, to, num_threads);
  else if (to.dtype() == DType::kF16)
    merge_as<Float16>(p, to, num_threads);
  else
    merge_as<BFloat16>(p, to, num_threads);
}

}  // namespace latent::attention
