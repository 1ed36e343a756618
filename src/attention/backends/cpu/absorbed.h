// SPDX-License-Identifier: Apache-2.0
// The absorbed form: the latent is read once for all heads, as key and as value.
#pragma once

#include "attention/backends/cpu/absorbed_plan.h"

namespace latent::attention::cpu {

size_t absorbed_workspace_bytes(const MlaDesc& desc, const Limits& limits);

// Writes the rows of the plan's tasks.
void run_absorbed(const ops::MlaAttentionParams& params, const Plan& plan,
                  const kernels::KernelContext& context);

}  // namespace latent::attention::cpu
