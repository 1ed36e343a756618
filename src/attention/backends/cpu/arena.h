// SPDX-License-Identifier: Apache-2.0
// Carves a workspace into aligned pieces. Without memory it only counts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/math.h"

namespace latent::attention::cpu {

class Arena {
 public:
  explicit Arena(std::byte* memory = nullptr) : memory_(memory) {}

  template <class T>
  T* take(int64_t count) {
    std::byte* at = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += round_up<int64_t>(count * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(at);
  }
  int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  int64_t used_ = 0;
};

}  // namespace latent::attention::cpu
