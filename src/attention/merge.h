// SPDX-License-Identifier: Apache-2.0
// Merging of two partial attention states of the same rows.
#pragma once

#include "ops/mla_attention.h"

namespace latent::attention {

// (out_a, or out, and lse_a) becomes the state over the keys of both. Total (contract C9): an empty state
// (LSE -inf) is the identity whatever its output holds, and empty with empty is zeros and -inf. Any strides.
void merge_states(const ops::MergeStatesParams& params, int num_threads);

}  // namespace latent::attention
