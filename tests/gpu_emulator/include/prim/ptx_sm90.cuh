// SPDX-License-Identifier: Apache-2.0
// The functions of src/prim/ptx_sm90.cuh, emulated; those of clusters are not.
#pragma once

#include <type_traits>

#include "cuda.h"
#include "prim/ptx_sm80.cuh"

namespace latent::ptx {

inline void mbarrier_init(uint64_t* barrier, int arrivals) { emulator::mbarrier_init(barrier, arrivals); }
inline void fence_mbarrier_init() {}
inline void mbarrier_arrive(uint64_t* barrier) { emulator::mbarrier_arrive(barrier, 0); }
inline void mbarrier_arrive_expect(uint64_t* barrier, int bytes) {
  emulator::mbarrier_arrive(barrier, bytes);
}
inline bool mbarrier_is_past(uint64_t* barrier, int parity) {
  emulator::yield();
  return emulator::mbarrier_is_past(barrier, parity);
}
inline void mbarrier_wait(uint64_t* barrier, int parity) { emulator::mbarrier_wait(barrier, parity); }

inline void allow_next_grid() {}
inline void wait_for_previous_grid() {}

inline void prefetch_tensor_map(const CUtensorMap*) {}
inline uint64_t evict_first_policy() { return 0; }
inline void tma_load_3d(void* shared, const CUtensorMap* map, int x, int y, int z, uint64_t* barrier,
                        uint64_t) {
  emulator::load_box(shared, *map, x, y, z, barrier);
}
// Of the one kind of rank-4 map that our kernels make (prefill_maps.h): rows are described twice, with one
// stride, so that w is where the map begins. A map's planes are its second coordinate.
inline void tma_load_4d(void* shared, const CUtensorMap* map, int x, int y, int z, int w, uint64_t* barrier) {
  if (w < 0 || z < 0 || z >= map->dims[1] || y < 0 || y >= map->dims[2])
    emulator::fail("a box lies outside of its tensor");
  CUtensorMap from_w = *map;
  from_w.base += w * map->strides[0];
  emulator::load_box(shared, from_w, x, z, y, barrier);
}
inline void fence_async_shared() {}

template <int kThreads>
void named_barrier_sync(int number) {
  __syncwarp();
  emulator::barrier_sync(number, kThreads);
}
template <int kThreads>
void named_barrier_arrive(int number) {
  __syncwarp();
  emulator::barrier_arrive(number, kThreads);
}
template <int kRegisters>
void give_up_registers() {
  emulator::change_registers(kRegisters);
}
template <int kRegisters>
void take_registers() {
  emulator::change_registers(kRegisters);
}

inline uint64_t matrix_descriptor(const void* shared, int group_bytes = 1024, int panel_bytes = 16) {
  return uint64_t{1} << 62 | uint64_t((shared_address(shared) & 0x3FFFF) >> 4) |
         uint64_t(panel_bytes >> 4) << 16 | uint64_t(group_bytes >> 4) << 32;
}
inline uint64_t advance(uint64_t descriptor, int bytes) {
  return descriptor + static_cast<uint64_t>(bytes >> 4);
}

inline void wgmma_fence() {}
inline void wgmma_commit() { emulator::commit(); }
template <int kPending>
void wgmma_wait() {
  emulator::wait_for_products(kPending);
}
inline uint64_t opaque(uint64_t x) { return x; }
template <int kCount>
void pin(float (&)[kCount]) {}

template <class T, int kTransA, int kCount>
void wgmma_ss(float (&d)[kCount], uint64_t a, uint64_t b, bool accumulate) {
  emulator::issue({.d = d,
                   .columns = kCount * 2,
                   .accumulate = accumulate,
                   .half = std::is_same_v<T, __half>,
                   .a_transposed = kTransA == 1,
                   .a = a,
                   .b = b});
}

template <class T, int kCount>
requires(kCount <= 16) void wgmma_rs(float (&d)[kCount], const uint32_t (&a)[4], uint64_t b,
                                     bool accumulate) {
  emulator::issue({.d = d,
                   .columns = kCount * 2,
                   .accumulate = accumulate,
                   .half = std::is_same_v<T, __half>,
                   .a_in_registers = true,
                   .b = b,
                   .a_registers = {a[0], a[1], a[2], a[3]}});
}

struct Matrices {
  void* row;
  const uint32_t* registers;
};
// Four 8x8 matrices; lane 8i + r has the address of row r of matrix i.
template <bool kTransposed>
void store_matrices(void* row, const uint32_t (&r)[4]) {
  const Matrices mine{row, r};
  emulator::with_warp("stmatrix", &mine, [](emulator::Warp& w) {
    for (int i = 0; i < 4; ++i)
      for (int at_row = 0; at_row < 8; ++at_row)
        for (int column = 0; column < 8; ++column) {
          const int held_row = kTransposed ? column : at_row, held_column = kTransposed ? at_row : column;
          const auto& from = *static_cast<const Matrices*>(w.in[held_row * 4 + held_column / 2]);
          const auto bits = static_cast<uint16_t>(from.registers[i] >> held_column % 2 * 16);
          const auto& to = *static_cast<const Matrices*>(w.in[i * 8 + at_row]);
          std::memcpy(static_cast<unsigned char*>(to.row) + column * 2, &bits, 2);
        }
  });
}
inline void stmatrix_x4(void* row, const uint32_t (&r)[4]) { store_matrices<false>(row, r); }
inline void stmatrix_x4_trans(void* row, const uint32_t (&r)[4]) { store_matrices<true>(row, r); }

}  // namespace latent::ptx
