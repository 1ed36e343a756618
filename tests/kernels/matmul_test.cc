// SPDX-License-Identifier: Apache-2.0
// What the CPU matrix operators share: whom they refuse, and their scratch memory. Their products are held to
// the reference in linear_test.cc and moe_experts_test.cc.
#include "kernels/cpu/matmul.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/cpu/matrix.h"
#include "kernels/run_kernel.h"
#include "testing/random.h"

namespace latent {
namespace {

using kernels::cpu::Arena;
using kernels::cpu::Isa;
using testing::Random;
using testing::Weights;

constexpr CpuFeatures kEverything = {
    .avx2 = true, .avx512 = true, .avx512_bf16 = true, .avx512_vbmi = true, .avx512_vnni = true};

std::string refusal(Isa isa, const CpuFeatures& features, const ops::WeightView& weight, DType x_type) {
  Random random(testing::test_seed());
  const Tensor x = random.tensor(x_type, {2, weight.cols()}),
               out = *Tensor::create(DType::kF32, {2, weight.rows()});
  const char* reason = kernels::cpu::refuse(isa, features, weight, x.view(), out.view());
  return reason == nullptr ? "" : reason;
}

TEST(Matmul, refuses_a_machine_that_lacks_its_instructions) {
  Random random(testing::test_seed());
  const Weights weight(random, DType::kBF16, {4, 64});
  EXPECT_EQ(refusal(Isa::kAvx2, {}, weight.view(), DType::kBF16), "needs AVX2");
  EXPECT_EQ(refusal(Isa::kAvx512, {.avx2 = true}, weight.view(), DType::kBF16), "needs AVX-512");
  EXPECT_EQ(refusal(Isa::kAvx512Bf16, {.avx2 = true, .avx512 = true}, weight.view(), DType::kBF16),
            "needs AVX-512 with BF16 and VBMI");
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16})
    EXPECT_EQ(refusal(isa, kEverything, weight.view(), DType::kBF16), "");
}

// bf16 products take bf16 operands only: f32 activations or f16 weights would lose bits on the way.
TEST(Matmul, bf16_products_serve_only_what_they_hold_exactly) {
  Random random(testing::test_seed());
  const Weights bf16(random, DType::kBF16, {4, 64}), f16(random, DType::kF16, {4, 64});
  const Weights even(random, DType::kF8E4M3, {4, 200}, testing::Values::kNormal, 128, 64);
  const Weights odd(random, DType::kF8E4M3, {4, 200}, testing::Values::kNormal, 128, 48);
  EXPECT_EQ(refusal(Isa::kAvx512Bf16, kEverything, even.view(), DType::kBF16), "");
  for (const Weights* w : {&f16, &odd}) {
    EXPECT_NE(refusal(Isa::kAvx512Bf16, kEverything, w->view(), DType::kBF16), "");
    EXPECT_EQ(refusal(Isa::kAvx512, kEverything, w->view(), DType::kBF16), "");
  }
  EXPECT_NE(refusal(Isa::kAvx512Bf16, kEverything, bf16.view(), DType::kF32), "");
}

TEST(Matmul, an_arena_hands_out_aligned_parts_that_do_not_overlap) {
  alignas(64) std::byte memory[512];
  Arena arena(memory), counter;
  std::byte* end = memory;
  for (const int64_t count : {1, 16, 33, 0, 5}) {
    auto* part = reinterpret_cast<std::byte*>(arena.take<float>(count));
    EXPECT_EQ(counter.take<float>(count), nullptr);
    EXPECT_EQ((part - memory) % 64, 0);
    EXPECT_GE(part, end);
    end = part + count * 4;
  }
  EXPECT_EQ(arena.used(), counter.used());
  EXPECT_LE(end, memory + arena.used());
}

// An executor reserves the workspace of its largest batch; every smaller one must fit.
TEST(Matmul, the_workspace_of_many_tokens_serves_fewer) {
  if (!cpu_features().avx2) GTEST_SKIP() << "no SIMD kernels on this machine";
  Random random(testing::test_seed());
  for (const DType type : {DType::kBF16, DType::kF32}) {
    const Weights weight(random, type, {33, 5000}), experts(random, type, {6, 40, 64}),
        down(random, type, {6, 64, 40});
    size_t linear = 0, moe = 0;
    for (const int64_t tokens : {0, 1, 2, 3, 5, 8, 9, 31, 33, 64, 200, 511, 512, 513, 2000}) {
      const Tensor x = *Tensor::create(type, {tokens, 5000}), out = *Tensor::create(type, {tokens, 33});
      const Tensor moe_x = *Tensor::create(type, {tokens, 64}),
                   ids = *Tensor::create(DType::kI32, {tokens, 3});
      for (const auto& impl : kernels::implementations<ops::LinearParams>()) {
        const ops::LinearParams p{.x = x.view(), .weight = weight.view(), .out = out.view()};
        if (impl.workspace_bytes == nullptr || impl.refuse(p, cpu_features()) != nullptr) continue;
        EXPECT_GE(impl.workspace_bytes(p, 2), linear) << tokens;
        linear = impl.workspace_bytes(p, 2);
        break;
      }
      const ops::MoeExpertsParams p{.x = moe_x.view(),
                                    .weights = ids.view(),
                                    .ids = ids.view(),
                                    .gate = experts.view(),
                                    .up = experts.view(),
                                    .down = down.view(),
                                    .out = moe_x.view(),
                                    .attrs = {}};
      const auto& impl = kernels::select(p);
      EXPECT_GE(impl.workspace_bytes(p, 2), moe) << tokens;
      moe = impl.workspace_bytes(p, 2);
    }
  }
}

}  // namespace
}  // namespace latent
