// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/mla_attention.h"

namespace latent::attention::cuda {

// attention::merge_states on device memory: enqueued on `stream`, a cudaStream_t. CHECKs that rows are whole
// and start and end at multiples of four columns.
void merge_states(const ops::MergeStatesParams& params, void* stream);

}  // namespace latent::attention::cuda
