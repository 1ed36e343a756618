// SPDX-License-Identifier: Apache-2.0
// What measuring on a GPU needs beside the kernels that are measured. All asynchronous on the stream, a
// cudaStream_t.
#pragma once

#include <cstddef>
#include <cstdint>

namespace latent::cli {

// Keeps the stream busy for about `nanoseconds`, so that what is enqueued meanwhile runs back to back.
void launch_delay(int64_t nanoseconds, void* stream);

// bf16 N(0, 1).
void launch_fill_normal(void* data, int64_t count, uint64_t seed, void* stream);

enum class ReadForm {
  kLoads,      // 16-byte loads of a full grid
  kBulkCopies  // half pages to shared memory, one issuing thread a multiprocessor; Hopper and later
};

// Reads every page once, in an order that looks random. `page_bytes` is a multiple of 32; *sink takes a word
// that depends on what was loaded.
void launch_read(ReadForm form, const void* pages, int64_t num_pages, int64_t page_bytes, int num_sms,
                 uint32_t* sink, void* stream);

}  // namespace latent::cli
