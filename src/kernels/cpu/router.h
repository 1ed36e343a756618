// SPDX-License-Identifier: Apache-2.0
// The router with vectorised scores. They are computed in double and rounded to f32 once, as the reference
// does, so that both order near-ties alike.
#pragma once

#include "kernels/cpu/isa.h"
#include "kernels/registry.h"

namespace latent::kernels::cpu {

size_t router_workspace(const ops::RouterParams& params, int num_threads);
template <class Isa>
void router(const ops::RouterParams& params, const KernelContext& context);

}  // namespace latent::kernels::cpu
