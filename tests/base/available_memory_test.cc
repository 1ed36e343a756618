// SPDX-License-Identifier: Apache-2.0
#include "base/available_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace latent {
namespace {

TEST(AvailableMemory, is_something_and_no_more_than_the_machine_has) {
  EXPECT_GT(available_memory_bytes(), int64_t{1} << 20);
  const int64_t all = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  constexpr int64_t kSwap = int64_t{1} << 42;  // more than anybody has
  EXPECT_LT(available_memory_bytes(), all + kSwap);
}

}  // namespace
}  // namespace latent
