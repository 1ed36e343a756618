// SPDX-License-Identifier: Apache-2.0
// The functions of src/prim/ptx_sm80.cuh, emulated.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace latent::ptx {

inline uint32_t shared_address(const void* pointer) { return emulator::to_address(pointer); }
inline void cp_async_16(void* shared, const void* global, bool valid) {
  emulator::copy_16(shared, valid ? global : nullptr);
}
inline void cp_async_commit() {}
template <int kPending>
void cp_async_wait() {
  static_assert(kPending == 0);
  emulator::wait_for_copies();
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
inline void fence_gpu() {}
inline int load_acquire(const int* global) {
  emulator::yield();
  return *global;
}
inline void prefetch_l1(const void*) {}
inline void prefetch_l2(const void*) {}
inline float exp2_approx(float x) { return std::exp2(x); }

}  // namespace latent::ptx
