// SPDX-License-Identifier: Apache-2.0
// The decode kernels of cuda_sm90 and cuda_sm80 on the emulator of tests/gpu_emulator, as a backend that
// reads host memory.
#pragma once

#include <memory>

#include "attention/backend.h"

namespace latent::testing {

struct Emulation {
  int rows = 16;         // of a row tile: 16, 32 or 64
  int parts = 4;         // that share the keys, for each row tile
  int ctas_at_once = 0;  // 0: all
  bool lazy = true;
  uint64_t seed = 1;
  bool portable = false;  // the kernel of cuda_sm80
  int stages = 2;         // of that kernel
};

// Serves bf16 with latent 256 and rope 32 or 0, and latent 512 with rope 64, codes too. run() CHECKs that the
// kernel ends and leaves its counters zero.
std::unique_ptr<attention::Backend> make_emulated_sm90(const Emulation& emulation);

}  // namespace latent::testing
