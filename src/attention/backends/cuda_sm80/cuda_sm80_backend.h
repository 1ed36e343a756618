// SPDX-License-Identifier: Apache-2.0
// Tensor-core kernels for any NVIDIA GPU since Ampere (mma.sync, cp.async).
#pragma once

#include "attention/backend.h"

namespace latent::attention {

const Backend& cuda_sm80_backend();

}  // namespace latent::attention
