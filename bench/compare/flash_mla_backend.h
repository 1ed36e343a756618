// SPDX-License-Identifier: Apache-2.0
// FlashMLA's dense decode as one more attention backend, for the bench alone.
#pragma once

#include "attention/backend.h"

namespace latent::bench {

const attention::Backend& flash_mla_backend();

}  // namespace latent::bench
