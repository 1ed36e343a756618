// SPDX-License-Identifier: Apache-2.0
// What CUDA C++ adds to C++, as far as our kernels use it. Compiled in front of their sources.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "gpu_emulator/machine.h"
#include "tensor/float_types.h"

#define __device__
#define __global__
#define __host__
#define __grid_constant__
#define __align__(bytes) alignas(bytes)
#define threadIdx (latent::emulator::self().index)
#define blockIdx (latent::emulator::self().cta->index)
#define gridDim (latent::emulator::grid_dim())

namespace latent::emulator {

inline Index3 grid_dim() { return {static_cast<unsigned>(launch().ctas), 1, 1}; }

template <class T>
uint64_t bits_of(const T& x) {
  uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof(T));
  return bits;
}
template <class T>
T from_bits(uint64_t bits) {
  T x;
  std::memcpy(&x, &bits, sizeof(T));
  return x;
}

struct Shuffle {
  uint64_t value;
  int source;  // lane to read
};
inline void do_shuffle(Warp& w) {
  for (int i = 0; i < 32; ++i) {
    const auto& s = *static_cast<const Shuffle*>(w.in[i]);
    w.out[i] = static_cast<const Shuffle*>(w.in[s.source & 31])->value;
  }
}
template <class T>
T shuffle(T x, int source) {
  const Shuffle s{bits_of(x), source};
  return from_bits<T>(with_warp("a shuffle", &s, do_shuffle));
}

}  // namespace latent::emulator

struct float2 {
  float x, y;
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

template <class T>
T __shfl_sync(unsigned, T x, int source) {
  return latent::emulator::shuffle(x, source);
}
template <class T>
T __shfl_xor_sync(unsigned, T x, int mask) {
  return latent::emulator::shuffle(x, latent::emulator::self().lane() ^ mask);
}
template <class T>
T __shfl_up_sync(unsigned, T x, int delta) {
  const int lane = latent::emulator::self().lane();
  return latent::emulator::shuffle(x, lane < delta ? lane : lane - delta);
}
inline unsigned __ballot_sync(unsigned, bool x) {
  return static_cast<unsigned>(latent::emulator::with_warp("a ballot", &x, [](latent::emulator::Warp& w) {
    uint64_t bits = 0;
    for (int i = 0; i < 32; ++i) bits |= uint64_t{*static_cast<const bool*>(w.in[i])} << i;
    for (uint64_t& o : w.out) o = bits;
  }));
}
inline bool __any_sync(unsigned mask, bool x) { return __ballot_sync(mask, x) != 0; }
inline int __reduce_add_sync(unsigned, int x) {
  return static_cast<int>(latent::emulator::with_warp("a reduction", &x, [](latent::emulator::Warp& w) {
    int sum = 0;
    for (const void* in : w.in) sum += *static_cast<const int*>(in);
    for (uint64_t& o : w.out) o = static_cast<uint64_t>(sum);
  }));
}
inline unsigned __reduce_max_sync(unsigned, unsigned x) {
  return static_cast<unsigned>(latent::emulator::with_warp("a reduction", &x, [](latent::emulator::Warp& w) {
    unsigned most = 0;
    for (const void* in : w.in) most = std::max(most, *static_cast<const unsigned*>(in));
    for (uint64_t& o : w.out) o = most;
  }));
}
inline void __syncwarp() {
  latent::emulator::with_warp("__syncwarp", nullptr, [](latent::emulator::Warp&) {});
}
inline void __syncthreads() { latent::emulator::barrier_sync(0, latent::emulator::launch().threads); }

inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __popc(unsigned x) { return std::popcount(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t{a} * b >> 32); }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selectors) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t x = 0;
  for (int i = 0; i < 4; ++i)
    x |= static_cast<uint32_t>(bytes >> (selectors >> 4 * i & 7) * 8 & 0xFF) << 8 * i;
  return x;
}
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
void __stcg(T* p, const T& x) {
  *p = x;
}
inline int64_t clock64() { return latent::emulator::clock(); }
inline void __nanosleep(unsigned) { latent::emulator::yield(); }
inline int atomicAdd(int* p, int x) { return (*p += x) - x; }
inline int atomicCAS(int* p, int expected, int x) {
  const int before = *p;
  if (before == expected) *p = x;
  return before;
}
using std::isfinite;
using std::max;
using std::min;
