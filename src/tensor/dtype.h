// SPDX-License-Identifier: Apache-2.0
// Element types of tensors.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "device/poison.h"  // ElementKind

namespace latent {

enum class DType {
  kF32,
  kF16,
  kBF16,
  kF8E4M3,  // OCP e4m3fn: no Inf, NaN is 0x7F/0xFF, largest 448
  kF8E8M0,  // a power of two as an 8-bit biased exponent; scales of some checkpoints, expanded to fp32 at
            // load
  kI32,     // every id: token, expert, page, slot
  kI64,     // appears in files only; refused wherever ids are expected (contract C7)
  kU8,
};

size_t dtype_bytes(DType dtype);
bool is_float(DType dtype);
const char* to_string(DType dtype);  // "f32", "bf16", "f8_e4m3", …
ElementKind element_kind(DType dtype);

// The name a safetensors header uses ("BF16", "F8_E4M3", …); nullopt for a type we do not read.
std::optional<DType> parse_safetensors_dtype(std::string_view name);
const char* safetensors_name(DType dtype);

}  // namespace latent
