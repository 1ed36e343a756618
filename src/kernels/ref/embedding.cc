// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"
#include "kernels/ref/element.h"
#include "kernels/ref/matrix.h"

namespace latent::kernels::ref {
namespace {

template <class W, class Out>
void copy_rows(const ops::EmbeddingParams& p, Range tokens) {
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    const WeightRow<W> row(p.table, p.ids.data<int32_t>()[t * p.ids.stride(0)]);
    for (int64_t i = 0; i < p.out.dim(1); ++i)
      store_float(p.out.row<Out>(t) + i * p.out.stride(1), static_cast<float>(row[i] * p.attrs.scale));
  }
}

}  // namespace

void embedding(const ops::EmbeddingParams& p, const KernelContext& context) {
  with_float_type(p.table.values.dtype(), [&](auto w0) {
    with_float_type(p.out.dtype(), [&](auto out0) {
      parallel_ranges(context.num_threads, p.ids.dim(0), 16,
                      [&](Range tokens) { copy_rows<decltype(w0), decltype(out0)>(p, tokens); });
    });
  });
}

}  // namespace latent::kernels::ref
