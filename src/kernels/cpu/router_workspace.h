// SPDX-License-Identifier: Apache-2.0
// One thread's scratch of the router within the kernel's workspace.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/moe.h"

namespace latent::kernels::cpu {

// A score costs about a nanosecond, starting a team some microseconds.
inline constexpr int64_t kLogitsWorthATeam = 16 * 1024;

struct RouterScratch {
  double* powers;       // [num_experts]
  float* scores;        // [num_experts]
  float* choices;       // [num_experts]
  float* group_scores;  // [num_groups]
  int32_t* groups;      // [num_groups]

  RouterScratch(const ops::RouterAttrs& attrs, std::byte* workspace, int thread);
  static size_t bytes(const ops::RouterAttrs& attrs);  // of one thread, a multiple of 64
};

}  // namespace latent::kernels::cpu
