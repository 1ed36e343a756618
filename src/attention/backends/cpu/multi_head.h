// SPDX-License-Identifier: Apache-2.0
// The multi-head form: keys and values are projected up from the latent, a fixed tile of the context and a
// head at a time, and serve all query rows of the step while they are in the cache of the thread that made
// them. Tiles lie at absolute positions from key 0 on and are always projected whole, zeros in place of
// missing keys, so that a row's bits do not depend on how its prompt was cut into steps (contract C5).
#pragma once

#include "attention/backend.h"

namespace latent::attention::cpu {

size_t multi_head_workspace_bytes(const MlaDesc& desc, const Limits& limits);

void run_multi_head(const ops::MlaAttentionParams& params, const kernels::KernelContext& context);

}  // namespace latent::attention::cpu
