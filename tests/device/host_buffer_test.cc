// SPDX-License-Identifier: Apache-2.0
#include "device/host_buffer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "testing/sanitizer.h"

namespace latent {
namespace {

constexpr size_t kSizes[] = {0, 1, 63, 64, 65, 4096, (1 << 20) - 1, 1 << 20, (3 << 20) + 5};

TEST(HostBuffer, has_an_aligned_address_for_every_size) {
  for (const size_t bytes : kSizes) {
    const Result<HostBuffer> buffer = HostBuffer::create(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(buffer->size_bytes(), bytes);
    EXPECT_NE(buffer->data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % HostBuffer::kAlignment, 0u);
  }
}

TEST(HostBuffer, of_a_megabyte_begins_at_a_large_page) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "under AddressSanitizer memory comes from the heap";
#else
  for (const size_t bytes : {size_t{1} << 20, (size_t{3} << 20) + 5, size_t{64} << 20}) {
    Result<HostBuffer> buffer = HostBuffer::create(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % (2 << 20), 0u) << bytes;
    buffer->data()[bytes - 1] = std::byte{1};  // mapped to its end
  }
#endif
}

// contract: C3
TEST(HostBuffer, is_poisoned_from_end_to_end) {
  for (const size_t bytes : kSizes) {
    const size_t count = bytes / sizeof(float);
    const Result<HostBuffer> buffer = HostBuffer::create(bytes, ElementKind::kFloat32, PoisonPattern::kNan);
    const auto* floats = reinterpret_cast<const float*>(buffer->data());
    for (size_t i = 0; i < count; ++i) ASSERT_TRUE(std::isnan(floats[i])) << i;
  }
}

// contract: C3
TEST(HostBuffer, gets_the_default_pattern_where_none_is_named) {
  const PoisonPattern before = default_poison();
  set_default_poison(PoisonPattern::kInf);
  const Result<HostBuffer> buffer = HostBuffer::create(8, ElementKind::kFloat32);
  set_default_poison(before);
  float first = 0;
  std::memcpy(&first, buffer->data(), sizeof first);
  EXPECT_EQ(first, INFINITY);
}

TEST(HostBuffer, moves_leave_nothing_behind) {
  HostBuffer a = *HostBuffer::create(100);
  std::byte* const data = a.data();
  const HostBuffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b.size_bytes(), 100u);
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(HostBuffer, takes_at_most_a_64th_more_than_asked_for) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer keeps memory of its own";
  if (resident_bytes() == 0) GTEST_SKIP() << "the system does not tell";
  std::vector<HostBuffer> held;
  const int64_t before = resident_bytes();
  int64_t asked = 0;
  for (int i = 0; i < 60; ++i) {
    const size_t bytes = (size_t{1} << 20) + static_cast<size_t>(i) * (size_t{100} << 10) + 7;
    held.push_back(*HostBuffer::create(bytes));
    std::memset(held.back().data(), 1, bytes);
    asked += static_cast<int64_t>(bytes);
  }
  const int64_t small_pages = 60 * sysconf(_SC_PAGESIZE), own = int64_t{1} << 20;
  EXPECT_LE(resident_bytes() - before, asked + asked / 64 + small_pages + own);
}

TEST(HostBuffer, more_than_there_is_is_an_error) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator ends the process instead";
#else
  const Result<HostBuffer> buffer = HostBuffer::create(size_t{1} << 60);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code, ErrorCode::kExhausted);
#endif
}

}  // namespace
}  // namespace latent
