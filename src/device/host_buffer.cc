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
constexpr size_t kHugePage = size_t{2} << 20, kPage = 4096;
constexpr size_t kMaxWaste = 64;

// Whole large pages where that adds at most a 64th, so that many matrices are not much more than their bytes;
// else the end lies in small ones.
size_t mapping_size(size_t num_bytes) {
  const size_t whole = round_up(num_bytes, kHugePage);
  return whole - num_bytes <= num_bytes / kMaxWaste ? whole : round_up(num_bytes, kPage);
}

// Fresh memory that begins at a large page, so that no end of it is left in small ones; null without memory.
std::byte* map_aligned(size_t bytes) {
  void* memory = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(memory);
  const size_t lead = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (lead > 0) munmap(begin, lead);
  munmap(begin + lead + bytes, kHugePage - lead);
  madvise(begin + lead, bytes, MADV_HUGEPAGE);
  return begin + lead;
}

}  // namespace

Result<HostBuffer> HostBuffer::create(size_t num_bytes, ElementKind kind, PoisonPattern pattern) {
  HostBuffer buffer;
  buffer.size_bytes_ = num_bytes;
  if (num_bytes >= kMapFrom) {
    const size_t mapped = mapping_size(num_bytes);
    buffer.data_ = map_aligned(mapped);
    if (buffer.data_ == nullptr)
      return make_error(ErrorCode::kExhausted, "no memory for {} bytes", num_bytes);
    buffer.mapped_bytes_ = mapped;
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
