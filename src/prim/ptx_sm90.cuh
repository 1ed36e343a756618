// SPDX-License-Identifier: Apache-2.0
// One PTX instruction, one function: what Hopper adds. Compile for sm_90a. PTX ISA 8.0 and later; the
// sections of its manual are named where a layout comes from one.
#pragma once

#include <cuda.h>  // CUtensorMap

#include <cstdint>
#include <type_traits>

#include "prim/ptx_sm80.cuh"

namespace latent::ptx {

// --- mbarrier: arrivals and bytes, in phases that alternate ---

__device__ inline void mbarrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}

// Makes initialised barriers visible to the copy engine and to other CTAs of the cluster.
__device__ inline void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void mbarrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrives, and announces bytes that copies will complete in this phase.
__device__ inline void mbarrier_arrive_expect(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

// Whether the phase of that parity is over.
__device__ inline bool mbarrier_is_past(uint64_t* barrier, int parity) {
  int past;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.s32 %0, 1, 0, done;\n"
      "}\n"
      : "=r"(past)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return past != 0;
}

// Until the phase of that parity is over. A fresh barrier counts as past phase 1.
__device__ inline void mbarrier_wait(uint64_t* barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// --- Clusters: CTAs that run at the same time and read each other's shared memory ---

__device__ inline int cluster_size() {
  int size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}
__device__ inline int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// A barrier of every thread of the cluster.
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Where CTA `rank` of the cluster has what this CTA has at `shared`.
__device__ inline uint32_t peer_address(const void* shared, int rank) {
  uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(shared)), "r"(rank));
  return address;
}
__device__ inline float4 load_peer_float4(uint32_t address) {
  float4 x;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(address)
               : "memory");
  return x;
}
__device__ inline float load_peer_float(uint32_t address) {
  float x;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}

__device__ inline int load_peer_int(uint32_t address) {
  int x;
  asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(x) : "r"(address) : "memory");
  return x;
}

__device__ inline void mbarrier_arrive_peer(uint32_t address) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(address) : "memory");
}
// As mbarrier_wait, for arrivals from the whole cluster.
__device__ inline void mbarrier_wait_cluster(uint64_t* barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// --- Grids that follow one another in a stream ---

// The next grid may be set up from here on, if it was launched so that it may.
__device__ inline void allow_next_grid() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// Until the grids before have ended and what they wrote is visible.
__device__ inline void wait_for_previous_grid() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// --- The copy engine ---

__device__ inline void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// L2 keeps these lines for the shortest time.
__device__ inline uint64_t evict_first_policy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// A box of a rank-3 tensor at column x, row y, plane z; completes its bytes on `barrier`.
__device__ inline void tma_load_3d(void* shared, const CUtensorMap* map, int x, int y, int z,
                                   uint64_t* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(shared)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

// The same of a rank-4 tensor, its lines to stay in L2 as others do.
__device__ inline void tma_load_4d(void* shared, const CUtensorMap* map, int x, int y, int z, int w,
                                   uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(shared)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(barrier))
      : "memory");
}

// Orders this thread's ordinary accesses to shared memory before later ones of the tensor cores and the copy
// engine.
__device__ inline void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- Barriers of some warps; number 0 is __syncthreads' ---

template <int kThreads>
__device__ inline void named_barrier_sync(int number) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}

// Counts this warp among those that a barrier waits for, and goes on.
template <int kThreads>
__device__ inline void named_barrier_arrive(int number) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(kThreads) : "memory");
}

// --- Registers a thread, for all four warps of a warpgroup. The kernel needs __launch_bounds__(threads, 1)
// and one branch a role ---

template <int kRegisters>
__device__ inline void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// --- Warpgroup matrix products. Operands in shared memory are described by 64-bit descriptors
// ("Matrix Descriptor Format"); all of ours use the 128-byte swizzle, atoms of 8 rows x 128 bytes, at
// addresses that are multiples of 1024 (a step along the row inside an atom is a plain addition of its bytes)
// ---

// `group_bytes` is the distance between groups of 8 rows: along M or N if the operand is K-major (its rows
// run along K), along K if it is MN-major. `panel_bytes` is the distance between panels of 64 columns of an
// MN-major operand wider than one.
__device__ inline uint64_t matrix_descriptor(const void* shared, int group_bytes = 1024,
                                             int panel_bytes = 16) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  return kSwizzle128 | uint64_t((shared_address(shared) & 0x3FFFF) >> 4) | uint64_t(panel_bytes >> 4) << 16 |
         uint64_t(group_bytes >> 4) << 32;
}

// The same descriptor, `bytes` further.
__device__ inline uint64_t advance(uint64_t descriptor, int bytes) { return descriptor + (bytes >> 4); }

// Registers written by ordinary code before are seen by the products that follow.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until at most kPending groups are under way.
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// x, but the compiler does not know that it is: what depends on it is computed where it is used, instead of
// early and kept for want of registers in memory.
__device__ inline uint64_t opaque(uint64_t x) {
  asm volatile("" : "+l"(x));
  return x;
}

// Keeps the compiler from moving uses of accumulators across a wait.
template <int kCount>
__device__ inline void pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// d (+)= A . B with A [64, 16] and B [16, kN] in shared memory, d in the accumulator layout: d[4j + 2h + e]
// is row 16 * (warp of the group) + lane / 4 + 8h, column 8j + 2 * (lane % 4) + e. Where `accumulate` is
// false the old d is ignored. kTransA: A is MN-major; B is K-major.
template <class T, int kTransA>
__device__ inline void wgmma_ss(float (&d)[8], uint64_t a, uint64_t b, bool accumulate);
template <class T, int kTransA>
__device__ inline void wgmma_ss(float (&d)[16], uint64_t a, uint64_t b, bool accumulate);

#define LATENT_WGMMA_N16(TYPE)                                                                         \
  asm volatile(                                                                                        \
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %10, 0;\n"                                               \
      "wgmma.mma_async.sync.aligned.m64n16k16.f32." TYPE "." TYPE                                      \
      " {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, keep, 1, 1, %11, 0;\n}\n"                            \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]) \
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransA)                                \
      : "memory")

#define LATENT_WGMMA_N32(TYPE)                                                                               \
  asm volatile(                                                                                              \
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %18, 0;\n"                                                     \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE                                            \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, keep, 1, 1, "      \
      "%19, 0;\n}\n"                                                                                         \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),      \
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]) \
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kTransA)                                      \
      : "memory")

template <class T, int kTransA>
__device__ inline void wgmma_ss(float (&d)[8], uint64_t a, uint64_t b, bool accumulate) {
  if constexpr (std::is_same_v<T, __half>)
    LATENT_WGMMA_N16("f16");
  else
    LATENT_WGMMA_N16("bf16");
}

template <class T, int kTransA>
__device__ inline void wgmma_ss(float (&d)[16], uint64_t a, uint64_t b, bool accumulate) {
  if constexpr (std::is_same_v<T, __half>)
    LATENT_WGMMA_N32("f16");
  else
    LATENT_WGMMA_N32("bf16");
}

// The same with A in registers, [64, 16]: a[0] is row 16 * (warp of the group) + lane / 4, columns
// 2 * (lane % 4) and the next, a[1] row + 8, a[2] columns + 8, a[3] both. They must not change before the
// product has been waited for.
template <class T>
__device__ inline void wgmma_rs(float (&d)[8], const uint32_t (&a)[4], uint64_t b, bool accumulate);
template <class T>
__device__ inline void wgmma_rs(float (&d)[16], const uint32_t (&a)[4], uint64_t b, bool accumulate);

#define LATENT_WGMMA_RS_N16(TYPE)                                                                      \
  asm volatile(                                                                                        \
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %13, 0;\n"                                               \
      "wgmma.mma_async.sync.aligned.m64n16k16.f32." TYPE "." TYPE                                      \
      " {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, %12, keep, 1, 1, 0;\n}\n"                \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate))          \
      : "memory")

#define LATENT_WGMMA_RS_N32(TYPE)                                                                            \
  asm volatile(                                                                                              \
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %21, 0;\n"                                                     \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE                                            \
      " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, " \
      "keep, 1, 1, 0;\n}\n"                                                                                  \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),      \
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate))                \
      : "memory")

template <class T>
__device__ inline void wgmma_rs(float (&d)[8], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  if constexpr (std::is_same_v<T, __half>)
    LATENT_WGMMA_RS_N16("f16");
  else
    LATENT_WGMMA_RS_N16("bf16");
}

template <class T>
__device__ inline void wgmma_rs(float (&d)[16], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  if constexpr (std::is_same_v<T, __half>)
    LATENT_WGMMA_RS_N32("f16");
  else
    LATENT_WGMMA_RS_N32("bf16");
}

#undef LATENT_WGMMA_RS_N16
#undef LATENT_WGMMA_RS_N32
#undef LATENT_WGMMA_N16
#undef LATENT_WGMMA_N32

// Stores four 8x8 matrices of 16-bit elements: lane i gives the address of row i % 8 of matrix i / 8; a
// register holds what mma's accumulators hold, packed in twos.
__device__ inline void stmatrix_x4(void* row, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// Stores four 8x8 matrices of 16-bit elements transposed: lane i gives the address of what becomes row i % 8
// of matrix i / 8; a register holds what mma's accumulators hold, packed in twos.
__device__ inline void stmatrix_x4_trans(void* row, const uint32_t (&r)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
}

}  // namespace latent::ptx
