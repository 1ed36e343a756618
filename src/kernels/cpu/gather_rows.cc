// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "base/check.h"
#include "base/parallel.h"
#include "kernels/cpu/row_threads.h"
#include "kernels/cpu/rowwise.h"

namespace latent::kernels::cpu {

void gather_rows(const ops::GatherRowsParams& p, const KernelContext& context) {
  const auto element = static_cast<int64_t>(dtype_bytes(p.x.dtype()));
  const auto* from = static_cast<const std::byte*>(p.x.raw());
  auto* to = static_cast<std::byte*>(p.out.raw());
  const auto row_bytes = static_cast<size_t>(p.out.dim(1) * element);
  parallel_ranges(row_threads(context, 2 * p.out.num_bytes()), p.out.dim(0), 1, [&](Range range) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      const int64_t row = p.rows.data<int32_t>()[i * p.rows.stride(0)];
      CHECK(row >= 0 && row < p.x.dim(0), "gather_rows: row {} of {}", row, p.x.dim(0));
      std::memcpy(to + i * p.out.stride(0) * element, from + row * p.x.stride(0) * element, row_bytes);
    }
  });
}

}  // namespace latent::kernels::cpu
