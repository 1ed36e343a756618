// SPDX-License-Identifier: Apache-2.0
// The matrix operators on a CPU, for the kernels of each instruction set. All hold contract C5 in every mode:
// bits do not depend on the number of tokens, on the other tokens, or on the number of threads.
#pragma once

#include "kernels/cpu/matmul.h"
#include "kernels/registry.h"

namespace latent::kernels::cpu {

size_t linear_workspace(Isa isa, const ops::LinearParams& params, int num_threads);
void linear(Isa isa, const ops::LinearParams& params, const KernelContext& context);

size_t head_linear_workspace(Isa isa, const ops::HeadLinearParams& params, int num_threads);
void head_linear(Isa isa, const ops::HeadLinearParams& params, const KernelContext& context);

const char* refuse_moe_experts(Isa isa, const ops::MoeExpertsParams& params, const CpuFeatures& features);
size_t moe_experts_workspace(Isa isa, const ops::MoeExpertsParams& params, int num_threads);
void moe_experts(Isa isa, const ops::MoeExpertsParams& params, const KernelContext& context);

// Any rank and strides, in blocks that fit a cache line each way.
void transpose(const ops::TransposeParams& params, const KernelContext& context);

}  // namespace latent::kernels::cpu
