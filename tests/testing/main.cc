// SPDX-License-Identifier: Apache-2.0
// main() of every test binary. Two variables of the environment make a round of `scripts/test --stress`:
//   LATENT_TEST_SEED=N          shuffles the cases and moves every test_seed(), which is the same in every
//   run
//                               without it
//   LATENT_TEST_POISON=PATTERN  what buffers hold that name no pattern: nan (as without it), inf, large, none
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "device/poison.h"

namespace {

// gtest keeps seeds below this, and takes the time for one where it is given none.
constexpr int kSeedLimit = 100000;

bool apply_seed(const char* text) {
  char* end = nullptr;
  const long seed = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || seed < 1 || seed >= kSeedLimit) {
    std::fprintf(stderr, "LATENT_TEST_SEED=%s: it is a number from 1 to %d\n", text, kSeedLimit - 1);
    return false;
  }
  GTEST_FLAG_SET(shuffle, true);
  GTEST_FLAG_SET(random_seed, static_cast<int>(seed));
  return true;
}

bool apply_poison(const char* name) {
  const std::optional<latent::PoisonPattern> pattern = latent::parse_poison(name);
  if (!pattern) {
    std::fprintf(stderr, "LATENT_TEST_POISON=%s: it is nan, inf, large or none\n", name);
    return false;
  }
  latent::set_default_poison(*pattern);
  return true;
}

}  // namespace

// What AddressSanitizer asks at exit: LLVM's OpenMP library loses 1,440 bytes for each thread by which a team
// is smaller than one before it, in a program of nothing but two teams, too.
extern "C" const char* __lsan_default_suppressions() { return "leak:libomp.so"; }

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const char* seed = std::getenv("LATENT_TEST_SEED");
  const char* poison = std::getenv("LATENT_TEST_POISON");
  if (GTEST_FLAG_GET(random_seed) == 0) GTEST_FLAG_SET(random_seed, 1);
  if (seed != nullptr && !apply_seed(seed)) return 2;
  if (!apply_poison(poison != nullptr ? poison : "nan")) return 2;
  return RUN_ALL_TESTS();
}
