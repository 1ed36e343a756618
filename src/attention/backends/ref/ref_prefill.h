// SPDX-License-Identifier: Apache-2.0
// Attention of prompts, scalar and in fp64: each row is one plain softmax. Never refuses host memory.
#pragma once

#include "attention/prefill.h"

namespace latent::attention {

const PrefillBackend& ref_prefill();

}  // namespace latent::attention
