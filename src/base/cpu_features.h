// SPDX-License-Identifier: Apache-2.0
// What this processor can do, asked once at start-up. Kernels are chosen by it at run time.
#pragma once

#include <string>

namespace latent {

struct CpuFeatures {
  bool avx2 = false;         // AVX2 + FMA + F16C
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_bf16 = false;  // vdpbf16ps
  bool avx512_vbmi = false;  // vpermi2b
  bool avx512_vnni = false;
};

// The processor's features, less what LATENT_ISA takes away: "scalar", "avx2" or "avx512" caps them.
const CpuFeatures& cpu_features();

// e.g. "avx2 avx512 avx512_bf16"; "scalar" where there is none.
std::string to_string(const CpuFeatures& features);

}  // namespace latent
