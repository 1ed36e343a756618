// SPDX-License-Identifier: Apache-2.0
#include "device/poison.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace latent {
namespace {

struct PatternBytes {
  uint32_t bits;
  size_t size;
};

// clang-format off
PatternBytes pattern_bytes(ElementKind kind, PoisonPattern p) {
  const auto pick = [p](uint32_t nan, uint32_t inf, uint32_t large) {
    return p == PoisonPattern::kNan ? nan : p == PoisonPattern::kInf ? inf : large;
  };
  switch (kind) {
    case ElementKind::kFloat32:    return {pick(0x7FC00000, 0x7F800000, 0x7E967699), 4};  // 1e38
    case ElementKind::kFloat16:    return {pick(0x7E00, 0x7C00, 0x7B00), 2};              // 57344
    case ElementKind::kBFloat16:   return {pick(0x7FC0, 0x7F80, 0x7E97), 2};              // 1e38
    case ElementKind::kFloat8E4M3: return {pick(0x7F, 0x7E, 0x7D), 1};                    // 448, 416
    case ElementKind::kInt32:      return {0x7FFFFFFF, 4};
    case ElementKind::kBytes:      return {0xFF, 1};
  }
  return {0xFF, 1};
}
// clang-format on

PoisonPattern g_default_poison = PoisonPattern::kNone;

}  // namespace

PoisonPattern default_poison() { return g_default_poison; }
void set_default_poison(PoisonPattern pattern) { g_default_poison = pattern; }

std::optional<PoisonPattern> parse_poison(std::string_view name) {
  for (const auto p : {PoisonPattern::kNone, PoisonPattern::kNan, PoisonPattern::kInf, PoisonPattern::kLarge})
    if (name == to_string(p)) return p;
  return std::nullopt;
}

const char* to_string(PoisonPattern pattern) {
  switch (pattern) {
    case PoisonPattern::kNone:
      return "none";
    case PoisonPattern::kNan:
      return "nan";
    case PoisonPattern::kInf:
      return "inf";
    case PoisonPattern::kLarge:
      return "large";
  }
  return "unknown";
}

void fill_poison(void* data, size_t num_bytes, ElementKind kind, PoisonPattern pattern) {
  if (pattern == PoisonPattern::kNone || num_bytes == 0) return;
  const PatternBytes p = pattern_bytes(kind, pattern);
  auto* bytes = static_cast<unsigned char*>(data);
  // Seed one element, then double the filled prefix.
  size_t filled = std::min(p.size, num_bytes);
  std::memcpy(bytes, &p.bits, filled);
  while (filled < num_bytes) {
    const size_t step = std::min(filled, num_bytes - filled);
    std::memcpy(bytes + filled, bytes, step);
    filled += step;
  }
}

}  // namespace latent
