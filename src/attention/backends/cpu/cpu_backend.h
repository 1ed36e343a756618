// SPDX-License-Identifier: Apache-2.0
// The CPU: any dims, strides and types; AVX-512 BF16, AVX-512, AVX2 or portable code, chosen at run time.
//
// Errors. f32 arithmetic throughout, but for the absorbed form of bf16 queries over a bf16 cache on AVX-512
// BF16: there the weights are rounded to bf16 before they meet the values, and inputs below 2^-126 count as
// 0. docs/notes/20261130-cpu-attention.md derives the bounds.
#pragma once

#include "attention/backend.h"

namespace latent::attention {

const Backend& cpu_backend();

}  // namespace latent::attention
