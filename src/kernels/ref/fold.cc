// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"
#include "kernels/ref/element.h"
#include "kernels/ref/matrix.h"

namespace latent::kernels::ref {
namespace {

template <class W, class Out>
void dequantize_rows(const ops::DequantizeParams& p, Range rows) {
  for (int64_t n = rows.begin; n < rows.end; ++n) {
    const WeightRow<W> row(p.weight, n);
    for (int64_t k = 0; k < p.weight.cols(); ++k)
      store_float(p.out.row<Out>(n) + k * p.out.stride(1), static_cast<float>(row[k]));
  }
}

}  // namespace

void dequantize(const ops::DequantizeParams& p, const KernelContext& context) {
  with_float_type(p.weight.values.dtype(), [&](auto w0) {
    with_float_type(p.out.dtype(), [&](auto out0) {
      parallel_ranges(context.num_threads, p.weight.rows(), 16,
                      [&](Range rows) { dequantize_rows<decltype(w0), decltype(out0)>(p, rows); });
    });
  });
}

void transpose(const ops::TransposeParams& p, const KernelContext&) {
  copy_elements(p.x.transpose(p.attrs.axis_a, p.attrs.axis_b), p.out);
}

}  // namespace latent::kernels::ref
