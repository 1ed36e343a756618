// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cpu/lane_engine.h"

#include "base/cpu_features.h"

namespace latent::attention::cpu {

const LaneEngine& f32_engine() {
#if defined(__x86_64__)
  if (cpu_features().avx512) return f32_engine_avx512();
  if (cpu_features().avx2) return f32_engine_avx2();
#endif
  return f32_engine_portable();
}

const LaneEngine* bf16_engine() {
#if defined(__x86_64__)
  if (cpu_features().avx512_bf16) return &bf16_engine_avx512();
#endif
  return nullptr;
}

}  // namespace latent::attention::cpu
