// SPDX-License-Identifier: Apache-2.0
// The reference: fp64, scalar, one thread, any dims, strides and types. The oracle of every other backend and
// the last resort of select().
#pragma once

#include "attention/backend.h"

namespace latent::attention {

const Backend& ref_backend();

}  // namespace latent::attention
