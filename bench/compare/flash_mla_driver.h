// SPDX-License-Identifier: Apache-2.0
// Calls FlashMLA's dense decode kernels for Hopper through their own parameter structs, without torch. Device
// memory throughout; launches are asynchronous on the stream, a cudaStream_t.
#pragma once

#include <cstddef>
#include <cstdint>

namespace latent::bench {

// One KV head, latent 512 + rope 64, pages of 64 tokens, bf16; as many queries in every request.
struct FlashMlaCall {
  const void* q = nullptr;               // [batch, q_len, heads, 576]
  const void* cache = nullptr;           // [num_pages, 64, 576]
  const int32_t* kv_lens = nullptr;      // [batch]
  const int32_t* block_table = nullptr;  // [batch, table_stride]
  void* out = nullptr;                   // [batch, q_len, heads, 512]
  float* lse = nullptr;                  // [batch, q_len, heads]
  int64_t num_pages = 0;
  int64_t table_stride = 0;
  int batch = 0, q_len = 0, heads = 0;
  float softmax_scale = 0;
  void* metadata = nullptr;  // metadata_bytes(), written by launch_flash_mla_metadata
  void* scratch = nullptr;   // scratch_bytes()
  void* stream = nullptr;
};

struct FlashMlaSizes {
  size_t metadata_bytes;
  size_t scratch_bytes;
};
FlashMlaSizes flash_mla_sizes(int batch, int q_len, int heads, int num_sms);

// Needs batch, q_len, heads, kv_lens, metadata.
void launch_flash_mla_metadata(const FlashMlaCall& call, int num_sms);
// Attention and combine.
void launch_flash_mla(const FlashMlaCall& call, int num_sms);

}  // namespace latent::bench
