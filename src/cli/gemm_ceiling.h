// SPDX-License-Identifier: Apache-2.0
// What a library of matrix products reaches on this machine: the bound that prefill is judged by.
#pragma once

#include <optional>
#include <string>

#include "tensor/dtype.h"

namespace latent::cli {

struct GemmCeiling {
  double flops_per_second = 0;
  std::string form;  // "512 x 2048 x 4096"
  int num_forms = 0;
};

// The best rate of oneDNN's product of [rows, k] by prepacked [k, n] weights over six shapes, in f32 or bf16;
// nullopt in a build without oneDNN. A few tenths of a second.
std::optional<GemmCeiling> measure_gemm_ceiling(int rows, DType dtype, int num_threads);

// The better of two measurements of one run.
std::optional<GemmCeiling> best_of(const std::optional<GemmCeiling>& a, const std::optional<GemmCeiling>& b);

}  // namespace latent::cli
