// SPDX-License-Identifier: Apache-2.0
// Row-wise kernels in f32 for f32 and bf16 operands; a row's bits depend on that row alone, on none of the
// strides and not on the number of threads.
#pragma once

#include "kernels/cpu/isa.h"
#include "kernels/registry.h"

namespace latent::kernels::cpu {

template <class Isa>
void rms_norm(const ops::RmsNormParams& params, const KernelContext& context);
template <class Isa>
void add(const ops::AddParams& params, const KernelContext& context);
template <class Isa>
void scale(const ops::ScaleParams& params, const KernelContext& context);
template <class Isa>
void silu(const ops::SiluParams& params, const KernelContext& context);
template <class Isa>
void mul(const ops::MulParams& params, const KernelContext& context);
template <class Isa>
void silu_mul(const ops::SiluMulParams& params, const KernelContext& context);

// No arithmetic, hence one for every machine.
void gather_rows(const ops::GatherRowsParams& params, const KernelContext& context);

}  // namespace latent::kernels::cpu
