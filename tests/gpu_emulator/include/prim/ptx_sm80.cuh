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
inline void fence_gpu() {}
inline int load_acquire(const int* global) {
  emulator::yield();
  return *global;
}
inline void prefetch_l1(const void*) {}
inline void prefetch_l2(const void*) {}
inline float exp2_approx(float x) { return std::exp2(x); }

}  // namespace latent::ptx
