// SPDX-License-Identifier: Apache-2.0
// Matrix operators in double precision: the oracle, and the implementation where no other serves.
#pragma once

#include "kernels/registry.h"

namespace latent::kernels::ref {

void linear(const ops::LinearParams& params, const KernelContext& context);
void head_linear(const ops::HeadLinearParams& params, const KernelContext& context);
void embedding(const ops::EmbeddingParams& params, const KernelContext& context);
void moe_experts(const ops::MoeExpertsParams& params, const KernelContext& context);
size_t moe_experts_workspace(const ops::MoeExpertsParams& params, int num_threads);
void dequantize(const ops::DequantizeParams& params, const KernelContext& context);
void transpose(const ops::TransposeParams& params, const KernelContext& context);

}  // namespace latent::kernels::ref
