// SPDX-License-Identifier: Apache-2.0
#include "device/host_buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#include "base/math.h"

namespace latent {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kMapFrom = SIZE_MAX;  // the heap, so that the sanitizer guards both ends
#else
constexpr size_t kMapFrom = size_t{1} << 20;
#endif
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Result<HostBuffer> HostBuffer::create(size_t num_bytes, ElementKind kind, PoisonPattern pattern) {
  HostBuffer buffer;
  buffer.size_bytes_ = num_bytes;
  if (num_bytes >= kMapFrom) {
    buffer.mapped_bytes_ = round_up(num_bytes, kHugePage);
    void* memory = mmap(nullptr, buffer.mapped_bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      buffer.mapped_bytes_ = 0;
      return make_error(ErrorCode::kExhausted, "no memory for {} bytes", num_bytes);
    }
    madvise(memory, buffer.mapped_bytes_, MADV_HUGEPAGE);
    buffer.data_ = static_cast<std::byte*>(memory);
  } else {
    // At least one line, so that a tensor of no elements still has an address.
    const size_t bytes = round_up(num_bytes + 1, kAlignment);
    buffer.data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes));
    if (buffer.data_ == nullptr)
      return make_error(ErrorCode::kExhausted, "no memory for {} bytes", num_bytes);
  }
  fill_poison(buffer.data_, num_bytes, kind, pattern);
  return buffer;
}

HostBuffer::~HostBuffer() {
  if (mapped_bytes_ > 0)
    munmap(data_, mapped_bytes_);
  else
    std::free(data_);
}

}  // namespace latent
