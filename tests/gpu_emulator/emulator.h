// SPDX-License-Identifier: Apache-2.0
// Runs kernels for NVIDIA GPUs on a CPU, thread by thread, so that their protocols (barriers, rings, who
// waits for whom), their masks and their index arithmetic are tested where there is no GPU. Kernel sources
// are compiled as C++ with include/ in front: its prim/ headers have the functions of src/prim, each with the
// meaning that the PTX manual gives the instruction, and builtins.h has what CUDA C++ adds to the language.
//
// Threads are fibers of one operating system thread; which of those that can run does so is drawn from a
// seed. What hardware does asynchronously is done late, as late as the kernel's waits permit, or at once:
// `lazy`. A kernel that waits for what never comes is reported with what its threads wait for. Not modelled:
// time, caches, bank conflicts, proxies and fences, clusters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace latent::emulator {

struct Launch {
  int ctas = 1;
  int threads = 32;         // a CTA, a multiple of 32
  size_t shared_bytes = 0;  // a CTA
  int registers = 255;      // a thread at the start; setmaxnreg blocks where the CTA has no more
  uint64_t seed = 1;
  bool lazy = true;         // copies and matrix products as late as possible; else at once
  size_t ctas_at_once = 0;  // how many run at the same time; 0: all
};

// Runs `kernel` once for each thread of the grid. Empty if it ended, else why it did not.
std::string run(const Launch& launch, const std::function<void(unsigned char* shared)>& kernel);

}  // namespace latent::emulator
