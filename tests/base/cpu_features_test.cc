// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_features.h"

#include <gtest/gtest.h>

namespace latent {
namespace {

TEST(CpuFeatures, larger_instruction_sets_imply_smaller_ones) {
  const CpuFeatures& f = cpu_features();
  EXPECT_TRUE(f.avx2 || !f.avx512);
  EXPECT_TRUE(f.avx512 || (!f.avx512_bf16 && !f.avx512_vbmi && !f.avx512_vnni));
}

TEST(CpuFeatures, print_as_a_list) {
  EXPECT_EQ(to_string(CpuFeatures{}), "scalar");
  EXPECT_EQ(to_string(CpuFeatures{.avx2 = true, .avx512 = true, .avx512_bf16 = true}),
            "avx2 avx512 avx512_bf16");
}

}  // namespace
}  // namespace latent
