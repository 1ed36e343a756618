// SPDX-License-Identifier: Apache-2.0
// When rows are worth spreading over threads.
#pragma once

#include <cstdint>

#include "kernels/registry.h"

namespace latent::kernels::cpu {

// Starting a team costs some microseconds, in which one core moves about this much through its caches.
inline constexpr int64_t kBytesWorthATeam = 256 * 1024;

// All threads or one: a team that changes its size costs more than either.
inline int row_threads(const KernelContext& context, int64_t num_bytes) {
  return num_bytes >= kBytesWorthATeam ? context.num_threads : 1;
}

}  // namespace latent::kernels::cpu
