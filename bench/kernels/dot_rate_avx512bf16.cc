// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "base/cpu_features.h"
#include "dot_rate.h"

namespace latent::bench {
namespace {

struct Dot {
  static void step(auto& acc, const auto& x, const auto& y) {
    asm volatile("vdpbf16ps %1, %2, %0" : "+v"(acc) : "v"(x), "v"(y));
  }
  static void step_memory(auto& acc, const auto& x, const auto& y) {
    asm volatile("vdpbf16ps %1, %2, %0" : "+v"(acc) : "m"(x), "v"(y));
  }
};
struct Fma {
  static void step(auto& acc, const auto& x, const auto& y) {
    asm volatile("vfmadd231ps %1, %2, %0" : "+v"(acc) : "v"(x), "v"(y));
  }
  static void step_memory(auto& acc, const auto& x, const auto& y) {
    asm volatile("vfmadd231ps %1, %2, %0" : "+v"(acc) : "m"(x), "v"(y));
  }
};

// kChains independent accumulators; one operand from a register or from memory.
template <class Op, class Vector, int kChains, bool kMemory>
void loop(int64_t rounds) {
  alignas(64) static const float kZero[16] = {};
  const auto& operand = *reinterpret_cast<const Vector*>(kZero);
  Vector acc[kChains], x{}, y{};
#pragma GCC unroll 32
  for (Vector& a : acc) a = Vector{};
  asm volatile("" : "+v"(x), "+v"(y));
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 32
    for (int c = 0; c < kChains; ++c) {
      if constexpr (kMemory)
        Op::step_memory(acc[c], operand, y);
      else
        Op::step(acc[c], x, y);
    }
  }
}

// A dot multiplies and adds two pairs a lane, an fma one.
template <class Op, int kFlopsPerLane>
constexpr DotLoop kLoops[] = {
    {"zmm, 8 chains", 8 * 16 * kFlopsPerLane, loop<Op, __m512, 8, false>},
    {"zmm, 12 chains", 12 * 16 * kFlopsPerLane, loop<Op, __m512, 12, false>},
    {"zmm, 16 chains", 16 * 16 * kFlopsPerLane, loop<Op, __m512, 16, false>},
    {"zmm, 24 chains", 24 * 16 * kFlopsPerLane, loop<Op, __m512, 24, false>},
    {"zmm, 16 chains, memory", 16 * 16 * kFlopsPerLane, loop<Op, __m512, 16, true>},
    {"ymm, 16 chains", 16 * 8 * kFlopsPerLane, loop<Op, __m256, 16, false>},
    {"ymm, 24 chains", 24 * 8 * kFlopsPerLane, loop<Op, __m256, 24, false>},
};

}  // namespace

std::span<const DotLoop> bf16_dot_loops() {
  if (!cpu_features().avx512_bf16) return {};
  return kLoops<Dot, 4>;
}
std::span<const DotLoop> f32_fma_loops() {
  if (!cpu_features().avx512_bf16) return {};
  return kLoops<Fma, 2>;
}

}  // namespace latent::bench
