// SPDX-License-Identifier: Apache-2.0
// Wide warpgroup matrix products, m64nNk16; ptx_sm90.cuh describes descriptors and the accumulator layout.
// d (+)= A . B, in fp32; where `accumulate` is false the old d is ignored. The size of d chooses N: two
// elements of d a column.
#pragma once

#include "prim/ptx_sm90.cuh"

namespace latent::ptx {

// The accumulator's registers, in an instruction's text and as its operands.
#define LATENT_TEXT_32                                                                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LATENT_TEXT_40 \
  LATENT_TEXT_32       \
  ", %32, %33, %34, %35, %36, %37, %38, %39"
#define LATENT_TEXT_64                                                                           \
  LATENT_TEXT_40                                                                                 \
  ", %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, " \
  "%58, %59, %60, %61, %62, %63"
#define LATENT_TEXT_128                                                                          \
  LATENT_TEXT_64                                                                                 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define LATENT_OUT_8(i)                                                                       \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define LATENT_OUT_32 LATENT_OUT_8(0), LATENT_OUT_8(8), LATENT_OUT_8(16), LATENT_OUT_8(24)
#define LATENT_OUT_40 LATENT_OUT_32, LATENT_OUT_8(32)
#define LATENT_OUT_64 LATENT_OUT_40, LATENT_OUT_8(40), LATENT_OUT_8(48), LATENT_OUT_8(56)
#define LATENT_OUT_128                                                                                     \
  LATENT_OUT_64, LATENT_OUT_8(64), LATENT_OUT_8(72), LATENT_OUT_8(80), LATENT_OUT_8(88), LATENT_OUT_8(96), \
      LATENT_OUT_8(104), LATENT_OUT_8(112), LATENT_OUT_8(120)

// SIZE registers of d, then the operands that TEXT names, then `accumulate`, which is operand KEEP.
#define LATENT_WGMMA(N, SIZE, TYPE, TEXT, KEEP, ...)                                                      \
  asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " KEEP ", 0;\nwgmma.mma_async.sync.aligned.m64n" N \
               "k16.f32." TYPE "." TYPE " {" LATENT_TEXT_##SIZE "}, " TEXT ";\n}\n"                       \
               : LATENT_OUT_##SIZE                                                                        \
               : __VA_ARGS__, "r"(static_cast<int>(accumulate))                                           \
               : "memory")

// A [64, 16] and B [16, N] in shared memory, both K-major.
#define LATENT_WGMMA_SS(N, SIZE, A, B, KEEP)                                                       \
  template <class T>                                                                               \
  __device__ inline void wgmma_wide_ss(float(&d)[SIZE], uint64_t a, uint64_t b, bool accumulate) { \
    if constexpr (std::is_same_v<T, __half>)                                                       \
      LATENT_WGMMA(N, SIZE, "f16", A ", " B ", keep, 1, 1, 0, 0", KEEP, "l"(a), "l"(b));           \
    else                                                                                           \
      LATENT_WGMMA(N, SIZE, "bf16", A ", " B ", keep, 1, 1, 0, 0", KEEP, "l"(a), "l"(b));          \
  }
LATENT_WGMMA_SS("64", 32, "%32", "%33", "%34")
LATENT_WGMMA_SS("80", 40, "%40", "%41", "%42")
LATENT_WGMMA_SS("128", 64, "%64", "%65", "%66")
#undef LATENT_WGMMA_SS

// The same, B MN-major.
#define LATENT_WGMMA_SS_MN(N, SIZE, A, B, KEEP)                                                       \
  template <class T>                                                                                  \
  __device__ inline void wgmma_wide_ss_mn(float(&d)[SIZE], uint64_t a, uint64_t b, bool accumulate) { \
    if constexpr (std::is_same_v<T, __half>)                                                          \
      LATENT_WGMMA(N, SIZE, "f16", A ", " B ", keep, 1, 1, 0, 1", KEEP, "l"(a), "l"(b));              \
    else                                                                                              \
      LATENT_WGMMA(N, SIZE, "bf16", A ", " B ", keep, 1, 1, 0, 1", KEEP, "l"(a), "l"(b));             \
  }
LATENT_WGMMA_SS_MN("128", 64, "%64", "%65", "%66")
LATENT_WGMMA_SS_MN("256", 128, "%128", "%129", "%130")
#undef LATENT_WGMMA_SS_MN

// A [64, 16] in registers: a[0] row lane / 4 of the warp's sixteen, columns 2 * (lane % 4) and the next; a[1]
// eight rows on; a[2], a[3] the same eight columns on. B [16, N] in shared memory, MN-major.
#define LATENT_WGMMA_RS(N, SIZE, A, B, KEEP)                                                                \
  template <class T>                                                                                        \
  __device__ inline void wgmma_wide_rs(float(&d)[SIZE], const uint32_t(&a)[4], uint64_t b,                  \
                                       bool accumulate) {                                                   \
    if constexpr (std::is_same_v<T, __half>)                                                                \
      LATENT_WGMMA(N, SIZE, "f16", "{" A "}, " B ", keep, 1, 1, 1", KEEP, "r"(a[0]), "r"(a[1]), "r"(a[2]),  \
                   "r"(a[3]), "l"(b));                                                                      \
    else                                                                                                    \
      LATENT_WGMMA(N, SIZE, "bf16", "{" A "}, " B ", keep, 1, 1, 1", KEEP, "r"(a[0]), "r"(a[1]), "r"(a[2]), \
                   "r"(a[3]), "l"(b));                                                                      \
  }
LATENT_WGMMA_RS("64", 32, "%32, %33, %34, %35", "%36", "%37")
LATENT_WGMMA_RS("128", 64, "%64, %65, %66, %67", "%68", "%69")
LATENT_WGMMA_RS("256", 128, "%128, %129, %130, %131", "%132", "%133")
#undef LATENT_WGMMA_RS

#undef LATENT_WGMMA
#undef LATENT_OUT_128
#undef LATENT_OUT_64
#undef LATENT_OUT_40
#undef LATENT_OUT_32
#undef LATENT_OUT_8
#undef LATENT_TEXT_128
#undef LATENT_TEXT_64
#undef LATENT_TEXT_40
#undef LATENT_TEXT_32

// Stores x, for the sake of the order alone: what comes after is not moved before x is there. The assembler
// otherwise lifts a wait for products over arithmetic that was to run under them.
__device__ inline void anchor(float* shared, float x) {
  asm volatile("st.volatile.shared.f32 [%0], %1;" ::"r"(shared_address(shared)), "f"(x) : "memory");
}

}  // namespace latent::ptx
