// SPDX-License-Identifier: Apache-2.0
// Reference kernels of ops/elementwise.h (all but embedding) and of the router: scalar, in double, one
// thread.
#pragma once

#include "kernels/registry.h"

namespace latent::kernels::ref {

void rms_norm(const ops::RmsNormParams& params, const KernelContext& context);
void add(const ops::AddParams& params, const KernelContext& context);
void scale(const ops::ScaleParams& params, const KernelContext& context);
void silu(const ops::SiluParams& params, const KernelContext& context);
void mul(const ops::MulParams& params, const KernelContext& context);
void silu_mul(const ops::SiluMulParams& params, const KernelContext& context);
void gather_rows(const ops::GatherRowsParams& params, const KernelContext& context);

size_t router_workspace(const ops::RouterParams& params, int num_threads);
void router(const ops::RouterParams& params, const KernelContext& context);

}  // namespace latent::kernels::ref
