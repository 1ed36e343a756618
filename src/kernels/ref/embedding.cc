// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/element.h"
#include "kernels/ref/matrix.h"

namespace latent::kernels::ref {
namespace {

template <class W, class Out>
void copy_rows(const ops::EmbeddingParams& p) {
  for (int64_t t = 0; t < p.ids.dim(0); ++t) {
    const WeightRow<W> row(p.table, p.ids.data<int32_t>()[t * p.ids.stride(0)]);
    for (int64_t i = 0; i < p.out.dim(1); ++i)
      store_float(p.out.row<Out>(t) + i * p.out.stride(1), static_cast<float>(row[i] * p.attrs.scale));
  }
}

}  // namespace

void embedding(const ops::EmbeddingParams& p, const KernelContext&) {
  with_float_type(p.table.values.dtype(), [&](auto w0) {
    with_float_type(p.out.dtype(), [&](auto out0) { copy_rows<decltype(w0), decltype(out0)>(p); });
  });
}

}  // namespace latent::kernels::ref
