// SPDX-License-Identifier: Apache-2.0
// Poison (contract C3): what memory holds until somebody writes it. Under every pattern ids get INT_MAX.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace latent {

enum class PoisonPattern {
  kNone,   // leave memory as it comes
  kNan,    // quiet NaN
  kInf,    // +Inf (e4m3 has none: its largest finite value)
  kLarge,  // a large finite value
};

// How the bytes of a buffer are read.
enum class ElementKind { kFloat32, kFloat16, kBFloat16, kFloat8E4M3, kInt32, kBytes };

// "nan", "inf", "large", "none".
std::optional<PoisonPattern> parse_poison(std::string_view name);
const char* to_string(PoisonPattern pattern);

// What buffers are filled with where no pattern is named: kNone, until the tests' main says otherwise. Set it
// before the first buffer and the first thread.
PoisonPattern default_poison();
void set_default_poison(PoisonPattern pattern);

// Fills `num_bytes` bytes at `data` with the pattern; a tail shorter than an element gets its leading bytes.
// kNone writes nothing. kBytes gets 0xFF (NaN in every float format) unless kNone.
void fill_poison(void* data, size_t num_bytes, ElementKind kind, PoisonPattern pattern);

}  // namespace latent
