// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_common/decode_params.h"

#include "base/check.h"
#include "ops/mla_attention.h"

namespace latent::attention::cuda {
namespace {

// Rows of 16 bytes at addresses of 16 bytes, as cp.async wants them.
bool is_aligned(const TensorView& view) {
  if (view.empty()) return true;
  const auto bytes = static_cast<int64_t>(dtype_bytes(view.dtype()));
  if (reinterpret_cast<uintptr_t>(view.raw()) % 16 != 0 || view.stride(view.rank() - 1) != 1) return false;
  for (int axis = 0; axis + 1 < view.rank(); ++axis)
    if (view.stride(axis) * bytes % 16 != 0) return false;
  return true;
}

}  // namespace

DecodeParams decode_params(const ops::MlaAttentionParams& p, const char* backend) {
  CHECK(is_aligned(p.q_nope) && (p.attrs.rope_dim == 0 || is_aligned(p.q_pe)) && is_aligned(p.cache) &&
            is_aligned(p.out),
        "{}: rows of q, cache and out must start at multiples of 16 bytes", backend);
  return {.q_nope = p.q_nope.raw(),
          .q_pe = p.q_pe.raw(),
          .cache = p.cache.raw(),
          .q_starts = p.batch.q_starts.data<int32_t>(),
          .kv_lens = p.batch.kv_lens.data<int32_t>(),
          .block_table = p.batch.block_table.data<int32_t>(),
          .out = p.out.raw(),
          .lse = p.lse.empty() ? nullptr : p.lse.data<float>(),
          .q_nope_token_stride = p.q_nope.stride(0),
          .q_nope_head_stride = p.q_nope.stride(1),
          .q_pe_token_stride = p.q_pe.stride(0),
          .q_pe_head_stride = p.q_pe.stride(1),
          .cache_page_stride = p.cache.stride(0),
          .cache_row_stride = p.cache.stride(1),
          .table_stride = p.batch.block_table.stride(0),
          .out_token_stride = p.out.stride(0),
          .out_head_stride = p.out.stride(1),
          .lse_token_stride = p.lse.empty() ? 0 : p.lse.stride(0),
          .lse_head_stride = p.lse.empty() ? 0 : p.lse.stride(1),
          .num_tokens = static_cast<int>(p.out.dim(0)),
          .num_seqs = static_cast<int>(p.batch.kv_lens.dim(0)),
          .num_heads = p.attrs.num_heads,
          .page_tokens = p.attrs.page_tokens,
          .softmax_scale = p.attrs.softmax_scale,
          .cache_scale = p.cache_scale};
}

}  // namespace latent::attention::cuda
