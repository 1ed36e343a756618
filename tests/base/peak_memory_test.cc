// SPDX-License-Identifier: Apache-2.0
#include "base/peak_memory.h"

#include <gtest/gtest.h>

#include <vector>

#include "testing/sanitizer.h"

namespace latent {
namespace {

TEST(PeakMemory, counts_what_was_written_and_does_not_fall) {
  const int64_t before = peak_resident_bytes();
  if (before == 0) GTEST_SKIP() << "the system does not tell";
  constexpr int64_t kBytes = 256 << 20;
  {
    std::vector<char> held(kBytes);
    volatile char* bytes = held.data();  // a compiler may leave out what nobody reads, the vector itself
    for (int64_t i = 0; i < kBytes; i += 4096) bytes[i] = 1;
  }
  const int64_t after = peak_resident_bytes();
  EXPECT_GE(after, kBytes) << "the vector was resident, whatever else was";
  EXPECT_GE(after, before);
  if (testing::kSanitized) return;  // which keeps memory of its own
  EXPECT_LT(after, before + kBytes + (64 << 20));
}

}  // namespace
}  // namespace latent
