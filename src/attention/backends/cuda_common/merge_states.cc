// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_common/merge_states.h"

#include "attention/backends/cuda_common/merge_kernel.h"
#include "base/check.h"

namespace latent::attention::cuda {
namespace {

MergeRows rows_of(const TensorView& view) { return {view.raw(), view.stride(0), view.stride(1)}; }

// A lane reads and writes four columns at once.
bool is_aligned(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.raw()) % (4 * dtype_bytes(view.dtype())) == 0 &&
         view.stride(2) == 1 && view.stride(0) % 4 == 0 && view.stride(1) % 4 == 0;
}

}  // namespace

void merge_states(const ops::MergeStatesParams& p, void* stream) {
  const TensorView& to = p.out.empty() ? p.out_a : p.out;
  CHECK(is_aligned(p.out_a) && is_aligned(p.out_b) && is_aligned(to) && to.dim(2) % 4 == 0,
        "rows of states must be whole, and start and end at multiples of 4 columns, not as {}, {}, {}",
        to_string(p.out_a), to_string(p.out_b), to_string(to));
  const MergeArgs args{.out_a = rows_of(p.out_a),
                       .lse_a = rows_of(p.lse_a),
                       .out_b = rows_of(p.out_b),
                       .lse_b = rows_of(p.lse_b),
                       .to = rows_of(to),
                       .rows = p.lse_a.num_elements(),
                       .heads = static_cast<int>(p.lse_a.dim(1)),
                       .width = static_cast<int>(to.dim(2))};
  if (args.rows > 0) launch_merge(args, to.dtype(), stream);
}

}  // namespace latent::attention::cuda
