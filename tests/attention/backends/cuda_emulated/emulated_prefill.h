// SPDX-License-Identifier: Apache-2.0
// The prefill kernels on the emulator of tests/gpu_emulator, as backends that read host memory. run() CHECKs
// that the kernel ends and leaves its counter zero.
#pragma once

#include <memory>

#include "attention/prefill.h"

namespace latent::testing {

struct PrefillEmulation {
  int ctas = 3;
  int ctas_at_once = 0;        // 0: all
  int section_keys = 1 << 20;  // keys of all heads of a section
  bool lazy = true;
  uint64_t seed = 1;
};

// Serves bf16 and f16 in widths that are multiples of 8.
std::unique_ptr<attention::PrefillBackend> make_emulated_sm80_prefill(const PrefillEmulation& emulation);
// Serves 192/128 and 256/256 in bf16 and f16.
std::unique_ptr<attention::PrefillBackend> make_emulated_sm90_prefill(const PrefillEmulation& emulation);

}  // namespace latent::testing
