// SPDX-License-Identifier: Apache-2.0
// The emulator finds what it is for. Kernels here are lambdas.
#include "gpu_emulator/emulator.h"

#include <gtest/gtest.h>

#include <vector>

#include "prim/ptx_sm90.cuh"
#include "testing/sanitizer.h"

namespace latent::emulator {
namespace {

class GpuEmulator : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::kThreadSanitized) GTEST_SKIP() << "ThreadSanitizer does not know the emulator's threads";
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(GpuEmulator, shuffles_ballots_and_reductions_are_those_of_a_warp) {
  std::vector<int> sums(64), from_left(64);
  std::vector<unsigned> ballots(64);
  const std::string failure = run({.threads = 64}, [&](unsigned char*) {
    const int thread = static_cast<int>(threadIdx.x);
    sums[threadIdx.x] = __reduce_add_sync(~0u, thread);
    from_left[threadIdx.x] = __shfl_up_sync(~0u, thread, 1);
    ballots[threadIdx.x] = __ballot_sync(~0u, thread % 2 == 0);
  });
  EXPECT_EQ(failure, "");
  EXPECT_EQ(sums[5], 31 * 32 / 2);
  EXPECT_EQ(sums[40], 31 * 32 / 2 + 32 * 32);
  EXPECT_EQ(from_left[32], 32);
  EXPECT_EQ(from_left[33], 32);
  EXPECT_EQ(ballots[63], 0x55555555u);
}

TEST_F(GpuEmulator, reports_lanes_that_part_ways_before_a_collective) {
  const std::string failure = run({.threads = 32}, [&](unsigned char*) {
    if (threadIdx.x < 16)
      __syncwarp();
    else
      __ballot_sync(~0u, true);
  });
  EXPECT_TRUE(contains(failure, "part ways")) << failure;
}

// A consumer that gives a box back only after it has the next one, with room for one.
TEST_F(GpuEmulator, reports_a_ring_that_waits_for_itself) {
  struct Ring {
    uint64_t full, empty;
  };
  for (const bool gives_back_early : {true, false}) {
    const std::string failure =
        run({.threads = 64, .shared_bytes = sizeof(Ring)}, [&](unsigned char* shared) {
          Ring& ring = *reinterpret_cast<Ring*>(shared);
          if (threadIdx.x == 0) {
            ptx::mbarrier_init(&ring.full, 1);
            ptx::mbarrier_init(&ring.empty, 1);
          }
          __syncthreads();
          if (threadIdx.x == 0)
            for (int i = 0; i < 2; ++i) {
              ptx::mbarrier_wait(&ring.empty, i % 2 ^ 1);
              ptx::mbarrier_arrive(&ring.full);
            }
          if (threadIdx.x != 32) return;
          ptx::mbarrier_wait(&ring.full, 0);
          if (gives_back_early) ptx::mbarrier_arrive(&ring.empty);
          ptx::mbarrier_wait(&ring.full, 1);
        });
    EXPECT_EQ(failure.empty(), gives_back_early) << failure;
    if (!gives_back_early) {
      EXPECT_TRUE(contains(failure, "warp 1 waits for mbarrier")) << failure;
    }
  }
}

// setmaxnreg gives nobody more than the CTA started with.
TEST_F(GpuEmulator, reports_registers_that_nobody_gave_up) {
  for (const bool enough : {true, false}) {
    const std::string failure = run({.threads = 384, .registers = 168}, [&](unsigned char*) {
      if (threadIdx.x < 256)
        ptx::take_registers<240>();
      else if (enough)
        ptx::give_up_registers<24>();
      else
        ptx::give_up_registers<32>();
    });
    EXPECT_EQ(failure.empty(), enough) << failure;
    if (!enough) {
      EXPECT_TRUE(contains(failure, "waits for registers")) << failure;
    }
  }
}

TEST_F(GpuEmulator, a_copy_that_nobody_waits_for_is_reported) {
  const std::vector<uint16_t> from(64 * 8, 1);
  const TensorMap map{.base = reinterpret_cast<const unsigned char*>(from.data()),
                      .dims = {64, 8, 1},
                      .strides = {128, 1024},
                      .box_rows = 8};
  const std::string failure = run({.threads = 32, .shared_bytes = 2048}, [&](unsigned char* shared) {
    auto* barrier = reinterpret_cast<uint64_t*>(shared + 1024);
    if (threadIdx.x > 0) return;
    ptx::mbarrier_init(barrier, 1);
    ptx::mbarrier_arrive_expect(barrier, 1024);
    ptx::tma_load_3d(shared, &map, 0, 0, 0, barrier, 0);
  });
  EXPECT_TRUE(contains(failure, "under way")) << failure;
}

// S = A . B with ones: 16 everywhere once it has been waited for, and not before.
TEST_F(GpuEmulator, products_are_there_after_the_wait_and_not_before) {
  for (const bool lazy : {true, false}) {
    std::vector<float> early(128), late(128);
    const std::string failure =
        run({.threads = 128, .shared_bytes = 16384, .lazy = lazy}, [&](unsigned char* shared) {
          for (unsigned i = threadIdx.x; i < 4096; i += 128)
            reinterpret_cast<uint16_t*>(shared)[i] = BFloat16::from_float(1.0f).bits;
          __syncthreads();
          float d[8] = {};
          ptx::wgmma_ss<__nv_bfloat16, 0>(d, ptx::matrix_descriptor(shared), ptx::matrix_descriptor(shared),
                                          false);
          ptx::wgmma_commit();
          early[threadIdx.x] = d[0];
          ptx::wgmma_wait<0>();
          late[threadIdx.x] = d[0];
        });
    EXPECT_EQ(failure, "");
    EXPECT_EQ(early, std::vector<float>(128, lazy ? 0.0f : 16.0f));
    EXPECT_EQ(late, std::vector<float>(128, 16.0f));
  }
}

// Every element is its own index.
TEST_F(GpuEmulator, matrices_are_loaded_in_the_order_of_the_manual) {
  std::vector<uint32_t> plain(32 * 4), transposed(32 * 4);
  const std::string failure = run({.threads = 32, .shared_bytes = 4 * 128}, [&](unsigned char* shared) {
    const unsigned lane = threadIdx.x;
    auto* numbers = reinterpret_cast<uint16_t*>(shared);  // [matrix][row][column]
    for (unsigned i = lane; i < 256; i += 32) numbers[i] = static_cast<uint16_t>(i);
    __syncwarp();
    uint32_t r[4];
    ptx::ldmatrix_x4(r, numbers + lane * 8);
    for (unsigned i = 0; i < 4; ++i) plain[lane * 4 + i] = r[i];
    ptx::ldmatrix_x4_trans(r, numbers + lane * 8);
    for (unsigned i = 0; i < 4; ++i) transposed[lane * 4 + i] = r[i];
  });
  EXPECT_EQ(failure, "");
  for (unsigned lane = 0; lane < 32; ++lane)
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned pair = lane % 4 * 2, other = lane / 4;
      const auto both = [&](unsigned low, unsigned high) { return (i * 64 + high) << 16 | (i * 64 + low); };
      EXPECT_EQ(plain[lane * 4 + i], both(other * 8 + pair, other * 8 + pair + 1));
      EXPECT_EQ(transposed[lane * 4 + i], both(pair * 8 + other, (pair + 1) * 8 + other));
    }
}

// A[r][k] = r + 1 where k = r, else 0; B[k][n] = 16 n + k: D[r][n] = (r + 1) (16 n + r), added to what was
// there.
TEST_F(GpuEmulator, a_warp_product_has_the_layout_of_the_manual) {
  std::vector<float> got(16 * 8);
  const std::string failure = run({.threads = 32}, [&](unsigned char*) {
    const int group = static_cast<int>(threadIdx.x) / 4, pair = static_cast<int>(threadIdx.x) % 4 * 2;
    const auto pack = [](float low, float high) {
      return uint32_t{BFloat16::from_float(high).bits} << 16 | BFloat16::from_float(low).bits;
    };
    const auto a_at = [](int r, int k) { return r == k ? static_cast<float>(r + 1) : 0.0f; };
    const auto b_at = [](int k, int n) { return static_cast<float>(16 * n + k); };
    uint32_t a[4], b[2];
    for (int i = 0; i < 4; ++i) {
      const int r = group + i % 2 * 8, k = pair + i / 2 * 8;
      a[i] = pack(a_at(r, k), a_at(r, k + 1));
    }
    for (int i = 0; i < 2; ++i) b[i] = pack(b_at(pair + i * 8, group), b_at(pair + i * 8 + 1, group));
    float d[4] = {0.5f, 0.5f, 0.5f, 0.5f};
    ptx::mma_m16n8k16<__nv_bfloat16>(d, a, b[0], b[1]);
    for (int i = 0; i < 4; ++i) got[static_cast<size_t>((group + i / 2 * 8) * 8 + pair + i % 2)] = d[i];
  });
  EXPECT_EQ(failure, "");
  for (int r = 0; r < 16; ++r)
    for (int n = 0; n < 8; ++n)
      EXPECT_EQ(got[static_cast<size_t>(r * 8 + n)], 0.5f + static_cast<float>((r + 1) * (16 * n + r)));
}

}  // namespace
}  // namespace latent::emulator
