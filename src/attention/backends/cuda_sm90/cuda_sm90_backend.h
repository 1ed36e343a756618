// SPDX-License-Identifier: Apache-2.0
// Absorbed decode on Hopper: warpgroup matrix products fed by the bulk copy engine.
#pragma once

#include "attention/backend.h"

namespace latent::attention {

const Backend& cuda_sm90_backend();

}  // namespace latent::attention
