// SPDX-License-Identifier: Apache-2.0
#include "text/token_table.h"

#include <bit>
#include <cstring>

namespace latent::text {
namespace {

uint64_t mix(uint64_t x) {
  x *= 0x9E3779B97F4A7C15u;
  return x ^ (x >> 32);
}

uint64_t hash_bytes(std::string_view bytes) {
  uint64_t hash = bytes.size();
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = mix(hash ^ word);
  }
  uint64_t tail = 0;
  std::memcpy(&tail, at, left);
  return mix(hash ^ mix(tail));
}

}  // namespace

TokenTable::TokenTable(size_t num_tokens) : slots_(std::bit_ceil(2 * num_tokens + 2)) {}

size_t TokenTable::slot_of(std::string_view token, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  for (; slots_[i].id != kNone; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.hash == static_cast<uint32_t>(hash >> 32) && slot.size == token.size() &&
        std::memcmp(bytes_.data() + slot.begin, token.data(), token.size()) == 0)
      break;
  }
  return i;
}

void TokenTable::insert(std::string_view token, int32_t id) {
  const uint64_t hash = hash_bytes(token);
  Slot& slot = slots_[slot_of(token, hash)];
  if (slot.id != kNone) return;
  slot = {.hash = static_cast<uint32_t>(hash >> 32),
          .id = id,
          .begin = static_cast<uint32_t>(bytes_.size()),
          .size = static_cast<uint32_t>(token.size())};
  bytes_.append(token);
}

int32_t TokenTable::find(std::string_view token) const {
  return slots_[slot_of(token, hash_bytes(token))].id;
}

}  // namespace latent::text
