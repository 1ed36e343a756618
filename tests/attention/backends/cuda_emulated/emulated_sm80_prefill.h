// SPDX-License-Identifier: Apache-2.0
// The prefill kernels of cuda_sm80 on the emulator of tests/gpu_emulator, as a backend that reads host
// memory.
#pragma once

#include <memory>

#include "attention/backends/cuda_emulated/emulated_sm90_prefill.h"

namespace latent::testing {

// Serves bf16 and f16 in widths that are multiples of 8. run() CHECKs that the kernel ends and leaves its
// counter zero.
std::unique_ptr<attention::PrefillBackend> make_emulated_sm80_prefill(const PrefillEmulation& emulation);

}  // namespace latent::testing
