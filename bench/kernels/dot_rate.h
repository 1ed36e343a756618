// SPDX-License-Identifier: Apache-2.0
// The ceilings of multiplication: loops that do nothing else, out of registers or the first-level cache.
#pragma once

#include <cstdint>
#include <span>

namespace latent::bench {

struct DotLoop {
  const char* name;
  double flops;  // of one round
  void (*run)(int64_t rounds);
};

// Empty where the processor lacks AVX-512 BF16.
std::span<const DotLoop> bf16_dot_loops();
std::span<const DotLoop> f32_fma_loops();

}  // namespace latent::bench
