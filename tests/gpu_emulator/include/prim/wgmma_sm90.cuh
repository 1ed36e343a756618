// SPDX-License-Identifier: Apache-2.0
// The functions of src/prim/wgmma_sm90.cuh, emulated.
#pragma once

#include "prim/ptx_sm90.cuh"

namespace latent::ptx {

template <class T, int kCount>
void wgmma_wide_ss(float (&d)[kCount], uint64_t a, uint64_t b, bool accumulate) {
  emulator::issue({.d = d,
                   .columns = kCount * 2,
                   .accumulate = accumulate,
                   .half = std::is_same_v<T, __half>,
                   .a = a,
                   .b = b});
}

template <class T, int kCount>
void wgmma_wide_rs(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  emulator::issue({.d = d,
                   .columns = kCount * 2,
                   .accumulate = accumulate,
                   .half = std::is_same_v<T, __half>,
                   .a_in_registers = true,
                   .b_transposed = true,
                   .b = b,
                   .a_registers = {a[0], a[1], a[2], a[3]}});
}

template <class T, int kCount>
void wgmma_wide_ss_mn(float (&d)[kCount], uint64_t a, uint64_t b, bool accumulate) {
  emulator::issue({.d = d,
                   .columns = kCount * 2,
                   .accumulate = accumulate,
                   .half = std::is_same_v<T, __half>,
                   .b_transposed = true,
                   .a = a,
                   .b = b});
}

// The order of waits is the source's here.
inline void anchor(float* shared, float x) { *shared = x; }

}  // namespace latent::ptx
