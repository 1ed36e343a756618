// SPDX-License-Identifier: Apache-2.0
// The functions of src/prim/ptx_sm80.cuh, emulated.
#pragma once

#include <type_traits>

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace latent::ptx {

inline uint32_t shared_address(const void* pointer) { return emulator::to_address(pointer); }
inline void cp_async_16(void* shared, const void* global, bool valid) {
  emulator::copy_16(shared, valid ? global : nullptr);
}
inline void cp_async_commit() { emulator::commit_copies(); }
template <int kPending>
void cp_async_wait() {
  emulator::wait_for_copies(kPending);
}
struct LoadMatrices {
  const void* row;
  uint32_t* registers;
};
// Four 8x8 matrices of 16-bit elements; lane 8i + r has the address of row r of matrix i.
template <bool kTransposed>
void load_matrices(uint32_t (&r)[4], const void* row) {
  const LoadMatrices mine{row, r};
  emulator::with_warp("ldmatrix", &mine, [](emulator::Warp& w) {
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        uint32_t both = 0;
        for (int e = 0; e < 2; ++e) {
          const int at_row = kTransposed ? lane % 4 * 2 + e : lane / 4;
          const int column = kTransposed ? lane / 4 : lane % 4 * 2 + e;
          uint16_t bits;
          std::memcpy(
              &bits,
              static_cast<const unsigned char*>(static_cast<const LoadMatrices*>(w.in[i * 8 + at_row])->row) +
                  column * 2,
              2);
          both |= uint32_t{bits} << 16 * e;
        }
        static_cast<const LoadMatrices*>(w.in[lane])->registers[i] = both;
      }
  });
}
inline void ldmatrix_x4(uint32_t (&r)[4], const void* row) { load_matrices<false>(r, row); }
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) { load_matrices<true>(r, row); }
struct WarpProduct {
  float* d;
  const uint32_t* a;
  uint32_t b[2];
};
// d[0], d[1]: row lane / 4, columns lane % 4 * 2 and the next; d[2], d[3]: eight rows on. Of a, 16x16: the
// same for columns 0-7, then for 8-15. Of b, 16x8: column lane / 4, rows lane % 4 * 2 and the next; eight on.
template <class T>
void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const WarpProduct mine{d, a, {b0, b1}};
  emulator::with_warp("mma", &mine, [](emulator::Warp& w) {
    const auto of = [&](int lane) -> const WarpProduct& {
      return *static_cast<const WarpProduct*>(w.in[lane]);
    };
    const auto number = [](uint32_t both, int k) {
      const auto bits = static_cast<uint16_t>(both >> k % 2 * 16);
      if constexpr (std::is_same_v<T, __half>) return std::bit_cast<Float16>(bits).to_float();
      return std::bit_cast<BFloat16>(bits).to_float();
    };
    float left[16][16], right[16][8];
    for (int k = 0; k < 16; ++k) {
      const int quad = k % 8 / 2;
      for (int r = 0; r < 16; ++r) left[r][k] = number(of(r % 8 * 4 + quad).a[r / 8 + k / 8 * 2], k);
      for (int n = 0; n < 8; ++n) right[k][n] = number(of(n * 4 + quad).b[k / 8], k);
    }
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        float sum = of(lane).d[i];
        for (int k = 0; k < 16; ++k) sum += left[lane / 4 + i / 2 * 8][k] * right[k][lane % 4 * 2 + i % 2];
        of(lane).d[i] = sum;
      }
  });
}
inline void fence_gpu() {}
inline int load_acquire(const int* global) {
  emulator::yield();
  return *global;
}
inline void prefetch_l1(const void*) {}
inline void prefetch_l2(const void*) {}
inline float exp2_approx(float x) { return std::exp2(x); }

}  // namespace latent::ptx
