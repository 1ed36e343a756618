// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_common/merge_states.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/backends/cuda/device_copies.h"
#include "attention/backends/cuda_common/device_info.h"
#include "attention/merge.h"
#include "tensor/convert.h"
#include "tensor/float_types.h"
#include "testing/random.h"

namespace latent {
namespace {

using testing::DeviceCopies;
using testing::Random;

constexpr float kEmpty = -std::numeric_limits<float>::infinity();
constexpr int64_t kTokens = 37, kHeads = 3, kWidth = 68;

struct State {
  Tensor out, lse;
};

// Of every third row one state is empty, of every ninth both; an empty state's outputs are NaN.
State draw(Random& random, int64_t empty) {
  State s{.out = random.tensor(DType::kF32, {kTokens, kHeads, kWidth}),
          .lse = random.tensor(DType::kF32, {kTokens, kHeads}, testing::Values::kNormal, 6)};
  for (int64_t row = 0; row < kTokens * kHeads; ++row) {
    if (row % 9 != 0 && row % 3 != empty) continue;
    s.lse.data<float>()[row] = kEmpty;
    for (int64_t i = 0; i < kWidth; ++i) s.out.data<float>()[row * kWidth + i] = NAN;
  }
  return s;
}

// contract: C2 C9
TEST(CudaMergeStates, agrees_with_the_cpu_on_every_kind_of_row) {
  if (!attention::cuda::device_info().present)
    GTEST_SKIP() << "needs an NVIDIA GPU, and the driver shows none";
  Random random(testing::test_seed());
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const State a = draw(random, 1), b = draw(random, 2);
    Tensor out = random.tensor(dtype, {kTokens, kHeads, kWidth}), got = random.tensor(dtype, out.shape());
    ops::MergeStatesParams host{.out_a = a.out.view(),
                                .lse_a = a.lse.view(),
                                .out_b = b.out.view(),
                                .lse_b = b.lse.view(),
                                .out = out.view()};
    ASSERT_TRUE(check(host).ok());
    DeviceCopies copies(1 << 20, PoisonPattern::kNan);
    const ops::MergeStatesParams device{.out_a = copies.upload(host.out_a),
                                        .lse_a = copies.upload(host.lse_a),
                                        .out_b = copies.upload(host.out_b),
                                        .lse_b = copies.upload(host.lse_b),
                                        .out = copies.upload(got.view())};
    attention::cuda::merge_states(device, nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
    attention::merge_states(host, 1);
    testing::download(device.out, got.view());
    Tensor lse = random.tensor(DType::kF32, {kTokens, kHeads});
    testing::download(device.lse_a, lse.view());
    for (int64_t row = 0; row < kTokens * kHeads; ++row) {
      const float want_lse = a.lse.data<float>()[row], got_lse = lse.data<float>()[row];
      // Shares of two exponentials that round differently by a few units in the last place.
      if (want_lse == kEmpty)
        EXPECT_EQ(got_lse, kEmpty);
      else
        EXPECT_NEAR(got_lse, want_lse, 8 * 0x1p-24 * (1 + std::abs(want_lse)));
      for (int64_t i = row * kWidth; i < (row + 1) * kWidth; ++i) {
        const double want = element_to_float(out.view().raw(), dtype, i);
        const double terms = std::max(std::abs(want), 8.0);  // inputs stay below eight
        EXPECT_NEAR(element_to_float(got.view().raw(), dtype, i), want,
                    16 * 0x1p-24 * terms + 2 * unit_roundoff(dtype) * std::abs(want) + 0x1p-24);
      }
    }
  }
}

}  // namespace
}  // namespace latent
