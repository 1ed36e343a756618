// SPDX-License-Identifier: Apache-2.0
// How much memory this process has held.
#pragma once

#include <cstdint>

namespace latent {

// The most bytes that were resident at one time since the program began, mapped files included (VmHWM; what
// getrusage says may belong to the program that started this one). 0 where the system does not tell.
int64_t peak_resident_bytes();

}  // namespace latent
