// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"
#include "kernels/ref/element.h"
#include "kernels/ref/matrix.h"

namespace latent::kernels::ref {
namespace {

// out[t, n] = sum_k x[t, k] * weight[n, k] for the given range of n.
template <class X, class W, class Out>
void multiply(const TensorView& x, const ops::WeightView& weight, const TensorView& out, Range rows) {
  for (int64_t n = rows.begin; n < rows.end; ++n) {
    const WeightRow<W> w(weight, n);
    for (int64_t t = 0; t < x.dim(0); ++t) {
      const double sum = dot(x.row<X>(t), x.stride(1), w, weight.cols());
      store_float(out.row<Out>(t) + n * out.stride(1), static_cast<float>(sum));
    }
  }
}

void multiply_any(const TensorView& x, const ops::WeightView& weight, const TensorView& out, Range rows) {
  with_float_type(x.dtype(), [&](auto x0) {
    with_float_type(weight.values.dtype(), [&](auto w0) {
      with_float_type(out.dtype(), [&](auto out0) {
        multiply<decltype(x0), decltype(w0), decltype(out0)>(x, weight, out, rows);
      });
    });
  });
}

}  // namespace

void linear(const ops::LinearParams& p, const KernelContext& context) {
  parallel_ranges(context.num_threads, p.weight.rows(), 1,
                  [&](Range rows) { multiply_any(p.x, p.weight, p.out, rows); });
}

void head_linear(const ops::HeadLinearParams& p, const KernelContext& context) {
  parallel_ranges(context.num_threads, p.weight.values.dim(0), 1, [&](Range heads) {
    for (int64_t h = heads.begin; h < heads.end; ++h)
      multiply_any(p.x.transpose(0, 1).at(h), p.weight.at(h), p.out.transpose(0, 1).at(h),
                   {0, p.weight.rows()});
  });
}

}  // namespace latent::kernels::ref
