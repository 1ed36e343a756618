// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_common/prefill_params.h"

#include "base/check.h"
#include "ops/prefill_attention.h"

namespace latent::attention::cuda {
namespace {

// Rows of whole 16 bytes at addresses of 16 bytes, as the copy engine and cp.async want them.
bool is_aligned(const TensorView& view) {
  if (view.num_elements() == 0) return true;
  const auto bytes = static_cast<int64_t>(dtype_bytes(view.dtype()));
  if (reinterpret_cast<uintptr_t>(view.raw()) % 16 != 0 || view.stride(2) != 1) return false;
  return view.stride(0) * bytes % 16 == 0 && view.stride(1) * bytes % 16 == 0;
}

PrefillRows rows_of(const TensorView& view) { return {view.raw(), view.stride(0), view.stride(1)}; }

}  // namespace

PrefillParams prefill_params(const ops::PrefillAttentionParams& p, const char* backend) {
  for (const TensorView* view : {&p.q_nope, &p.q_pe, &p.k_nope, &p.k_pe, &p.v, &p.out})
    CHECK(is_aligned(*view), "{}: rows of q, k, v and out must start at multiples of 16 bytes, not as {}",
          backend, to_string(*view));
  CHECK(p.q_starts.is_contiguous() && p.kv_starts.is_contiguous(), "{}: offsets must lie side by side",
        backend);
  return {.q_nope = rows_of(p.q_nope),
          .q_pe = rows_of(p.q_pe),
          .k_nope = rows_of(p.k_nope),
          .k_pe = rows_of(p.k_pe),
          .v = rows_of(p.v),
          .q_starts = p.q_starts.data<int32_t>(),
          .kv_starts = p.kv_starts.data<int32_t>(),
          .out = p.out.raw(),
          .lse = p.lse.empty() ? nullptr : p.lse.data<float>(),
          .out_token_stride = p.out.stride(0),
          .out_head_stride = p.out.stride(1),
          .lse_token_stride = p.lse.empty() ? 0 : p.lse.stride(0),
          .lse_head_stride = p.lse.empty() ? 0 : p.lse.stride(1),
          .num_tokens = static_cast<int>(p.out.dim(0)),
          .num_keys = static_cast<int>(p.v.dim(0)),
          .num_seqs = static_cast<int>(p.q_starts.dim(0)) - 1,
          .num_heads = p.attrs.num_heads,
          .causal = p.attrs.causal,
          .out_is_f32 = p.out.dtype() == DType::kF32,
          .softmax_scale = p.attrs.softmax_scale,
          .next_item = nullptr};
}

}  // namespace latent::attention::cuda
