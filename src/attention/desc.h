// SPDX-License-Identifier: Apache-2.0
// What every backend asks of a description and a batch.
#pragma once

#include <optional>

#include "attention/backend.h"
#include "base/parallel.h"
#include "ops/kv_layout.h"

namespace latent::attention {

inline bool is_absorbed(const ops::MlaAttentionAttrs& a) { return a.form == ops::AttentionForm::kAbsorbed; }
// Width of q_nope, and of the output of one head.
inline int q_width(const ops::MlaAttentionAttrs& a) { return is_absorbed(a) ? a.kv_rank : a.nope_dim; }
inline int out_width(const ops::MlaAttentionAttrs& a) { return is_absorbed(a) ? a.kv_rank : a.v_dim; }

// How the cache of a description, or of a step, lies in memory.
inline ops::KvLayout kv_layout(const ops::MlaAttentionAttrs& a, DType cache_dtype) {
  return {.kv_rank = a.kv_rank, .rope_dim = a.rope_dim, .page_tokens = a.page_tokens, .dtype = cache_dtype};
}
inline ops::KvLayout kv_layout(const MlaDesc& desc) { return kv_layout(desc.attrs, desc.cache_dtype); }

// Why no backend can serve the description: sizes that are not positive, types outside the contract.
std::optional<Refusal> refuse_malformed(const MlaDesc& desc);
// Why a backend on a CPU cannot.
std::optional<Refusal> refuse_device_memory(const MlaDesc& desc);

// Query rows of a request, host data.
inline Range query_rows(const ops::AttentionBatch& batch, int64_t seq) {
  const auto* starts = batch.q_starts.data<int32_t>();
  return {starts[seq * batch.q_starts.stride(0)], starts[(seq + 1) * batch.q_starts.stride(0)]};
}
inline int64_t num_seqs(const ops::AttentionBatch& batch) { return batch.kv_lens.dim(0); }
inline int64_t kv_len(const ops::AttentionBatch& batch, int64_t seq) {
  return batch.kv_lens.data<int32_t>()[seq * batch.kv_lens.stride(0)];
}
// Rows from here on are padding.
inline int64_t num_live_rows(const ops::AttentionBatch& batch) {
  return batch.q_starts.data<int32_t>()[num_seqs(batch) * batch.q_starts.stride(0)];
}

}  // namespace latent::attention
