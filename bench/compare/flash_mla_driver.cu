// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "compare/flash_mla_driver.h"
#include "sm90/decode/dense/splitkv_mla.h"
#include "smxx/decode/combine/combine.h"
#include "smxx/decode/get_decoding_sched_meta/get_decoding_sched_meta.h"

namespace latent::bench {
namespace {

constexpr int kWidth = 576, kLatent = 512, kPageTokens = 64, kRowTile = 64;
constexpr int kFixedBlocks = 5;  // what its interface passes as the cost of starting a request
constexpr size_t kAlignment = 256;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// As its interface derives them from the call.
struct Parts {
  int rows;  // query rows of a request
  int num;   // CTAs that share the keys
  Parts(int q_len, int heads, int num_sms)
      : rows(q_len * heads), num(std::max(num_sms / ((rows + kRowTile - 1) / kRowTile), 1)) {}
};

size_t scheduler_bytes(int num_parts) {
  return aligned(static_cast<size_t>(num_parts) * DecodingSchedMetaSize);
}

DecodingSchedMeta* scheduler(const FlashMlaCall& c) { return static_cast<DecodingSchedMeta*>(c.metadata); }

int* num_splits(const FlashMlaCall& c, const Parts& parts) {
  return reinterpret_cast<int*>(static_cast<char*>(c.metadata) + scheduler_bytes(parts.num));
}

size_t lse_bytes(int batch, const Parts& parts) {
  return aligned(static_cast<size_t>(batch + parts.num) * static_cast<size_t>(parts.rows) * sizeof(float));
}

}  // namespace

FlashMlaSizes flash_mla_sizes(int batch, int q_len, int heads, int num_sms) {
  const Parts parts(q_len, heads, num_sms);
  const size_t out =
      static_cast<size_t>(batch + parts.num) * static_cast<size_t>(parts.rows) * kLatent * sizeof(float);
  return {
      .metadata_bytes = scheduler_bytes(parts.num) + aligned((static_cast<size_t>(batch) + 1) * sizeof(int)),
      .scratch_bytes = lse_bytes(batch, parts) + out};
}

void launch_flash_mla_metadata(const FlashMlaCall& c, int num_sms) {
  const Parts parts(c.q_len, c.heads, num_sms);
  GetDecodeSchedMetaParams p{};
  p.b = c.batch;
  p.s_q = c.q_len;
  p.block_size_n = kPageTokens;
  p.fixed_overhead_num_blocks = kFixedBlocks;
  p.topk = p.extra_topk = -1;
  p.seqlens_k_ptr = const_cast<int*>(c.kv_lens);
  p.tile_scheduler_metadata_ptr = scheduler(c);
  p.num_splits_ptr = num_splits(c, parts);
  p.num_sm_parts = parts.num;
  p.stream = static_cast<cudaStream_t>(c.stream);
  smxx::decode::run_get_decoding_sched_meta_kernel(p);
}

void launch_flash_mla(const FlashMlaCall& c, int num_sms) {
  const Parts parts(c.q_len, c.heads, num_sms);
  const int64_t rows = parts.rows;
  auto* lse_parts = static_cast<float*>(c.scratch);
  auto* out_parts = reinterpret_cast<float*>(static_cast<char*>(c.scratch) + lse_bytes(c.batch, parts));

  DenseAttnDecodeParams p{};
  p.b = c.batch;
  p.s_q = c.q_len;
  p.q_seq_per_hk = parts.rows;
  p.d = kWidth;
  p.d_v = kLatent;
  p.h_q = p.q_head_per_hk = c.heads;
  p.h_k = 1;
  p.num_blocks = static_cast<int>(c.num_pages);
  p.is_causal = c.q_len > 1;
  p.scale_softmax = c.softmax_scale;
  p.scale_softmax_log2 = static_cast<float>(c.softmax_scale * M_LOG2E);
  p.q_ptr = const_cast<void*>(c.q);
  p.k_ptr = const_cast<void*>(c.cache);
  p.o_ptr = c.out;
  p.softmax_lse_ptr = c.lse;
  p.q_batch_stride = rows * kWidth;
  p.k_batch_stride = int64_t{kPageTokens} * kWidth;
  p.o_batch_stride = rows * kLatent;
  p.q_row_stride = p.k_row_stride = p.q_head_stride = p.k_head_stride = kWidth;
  p.o_row_stride = kLatent;
  p.o_head_stride = rows * kLatent;
  p.block_table = const_cast<int*>(c.block_table);
  p.block_table_batch_stride = c.table_stride;
  p.page_block_size = kPageTokens;
  p.seqlens_k_ptr = const_cast<int*>(c.kv_lens);
  p.tile_scheduler_metadata_ptr = scheduler(c);
  p.num_sm_parts = parts.num;
  p.num_splits_ptr = num_splits(c, parts);
  p.total_num_splits = c.batch + parts.num;
  p.softmax_lseaccum_ptr = lse_parts;
  p.oaccum_ptr = out_parts;
  p.stream = static_cast<cudaStream_t>(c.stream);
  sm90::run_flash_splitkv_mla_kernel<cutlass::bfloat16_t>(p);

  CombineParams m{};
  m.b = c.batch;
  m.s_q = c.q_len;
  m.h_q = c.heads;
  m.d_v = kLatent;
  m.lse = c.lse;
  m.out = c.out;
  m.stride_lse_b = m.stride_lse_accum_split = parts.rows;
  m.stride_lse_s_q = m.stride_lse_accum_s_q = c.heads;
  m.stride_o_b = m.stride_o_accum_split = parts.rows * kLatent;
  m.stride_o_s_q = m.stride_o_accum_s_q = c.heads * kLatent;
  m.stride_o_h_q = m.stride_o_accum_h_q = kLatent;
  m.lse_accum = lse_parts;
  m.o_accum = out_parts;
  m.tile_scheduler_metadata_ptr = p.tile_scheduler_metadata_ptr;
  m.num_splits_ptr = p.num_splits_ptr;
  m.num_sm_parts = parts.num;
  m.attn_sink = nullptr;
  m.stream = p.stream;
  smxx::decode::run_flash_mla_combine_kernel<cutlass::bfloat16_t>(m);
}

}  // namespace latent::bench
