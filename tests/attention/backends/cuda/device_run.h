// SPDX-License-Identifier: Apache-2.0
// Runs a device backend on host operands: everything goes to device memory with its strides, outputs and
// scratch are poisoned there, and what the kernel wrote comes back.
#pragma once

#include "attention/backend.h"

namespace latent::testing {

struct DeviceRun {
  PoisonPattern pattern = PoisonPattern::kNan;
  int repeats = 1;  // launches on the same plan, as the layers of a step are
};

// `params` is in host memory; out and lse are overwritten. The lengths are taken from its batch.
void run_on_device(const attention::Backend& backend, const ops::MlaAttentionParams& params,
                   const attention::Limits& limits, const DeviceRun& options);

}  // namespace latent::testing
