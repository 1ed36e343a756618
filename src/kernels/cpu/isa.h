// SPDX-License-Identifier: Apache-2.0
// Tags of the instruction sets that row-wise kernels are built for. A kernel is a template over a tag, in a
// header that <name>_avx2.cc and <name>_avx512.cc instantiate, each built with its own flags.
#pragma once

#include "base/cpu_features.h"

namespace latent::kernels::cpu {

struct Avx2 {
  static const char* refuse(const CpuFeatures& cpu) { return cpu.avx2 ? nullptr : "needs AVX2"; }
};
struct Avx512 {
  static const char* refuse(const CpuFeatures& cpu) { return cpu.avx512 ? nullptr : "needs AVX-512"; }
};

// An Implementation's refuse for kernels that serve every operand.
template <class Isa, class Params>
const char* refuse_without(const Params&, const CpuFeatures& cpu) {
  return Isa::refuse(cpu);
}

}  // namespace latent::kernels::cpu
