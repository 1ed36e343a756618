// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace latent {

// Bytes that this process may still take without pushing others out: what the system has free or can free at
// once, swap included, and no more than its control group allows. The largest number where /proc does not
// say.
int64_t available_memory_bytes();

}  // namespace latent
