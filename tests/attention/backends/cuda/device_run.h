// SPDX-License-Identifier: Apache-2.0
// Runs a device backend on host operands: everything goes to device memory with its strides and with what
// lies between its rows, scratch is poisoned there, and what the kernel wrote comes back.
#pragma once

#include "attention/backend.h"

namespace latent::testing {

struct DeviceRun {
  size_t workspace_bytes = 0;
  PoisonPattern poison = PoisonPattern::kNan;
  int unused_pages = 0;  // of the cache, in front: poisoned, not copied
  int launches = 1;      // on the same plan and workspace
  bool deterministic = false;
};

// `params` is in host memory; out and lse are overwritten. May be called from several threads at once.
void run_on_device(const attention::Backend& backend, const ops::MlaAttentionParams& params,
                   const attention::Plan& plan, const DeviceRun& options);

}  // namespace latent::testing
