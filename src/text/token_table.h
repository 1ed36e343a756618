// SPDX-License-Identifier: Apache-2.0
// Bytes to token id: an open-addressing hash table over one block of memory, built once, read by any number
// of threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace latent::text {

class TokenTable {
 public:
  static constexpr int32_t kNone = -1;

  // Room for `num_tokens` insertions.
  explicit TokenTable(size_t num_tokens = 0);

  // A token that is there already keeps its first id.
  void insert(std::string_view token, int32_t id);
  int32_t find(std::string_view token) const;  // kNone if absent

 private:
  struct Slot {
    uint32_t hash;
    int32_t id = kNone;
    uint32_t begin;  // in bytes_
    uint32_t size;
  };

  size_t slot_of(std::string_view token, uint64_t hash) const;

  std::vector<Slot> slots_;  // a power of two, at most half full
  std::string bytes_;
};

}  // namespace latent::text
