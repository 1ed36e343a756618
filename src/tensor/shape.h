// SPDX-License-Identifier: Apache-2.0
// Up to four extents, in elements. Small and copyable.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/check.h"

namespace latent {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const int64_t> extents) : rank_(static_cast<int>(extents.size())) {
    CHECK(extents.size() <= kMaxRank, "a tensor has at most {} dimensions, not {}", kMaxRank, extents.size());
    for (int i = 0; i < rank_; ++i) extents_[i] = extents[i];
  }

  int rank() const { return rank_; }
  int64_t operator[](int axis) const {
    DCHECK(axis >= 0 && axis < rank_, "axis {} of a tensor of rank {}", axis, rank_);
    return extents_[axis];
  }
  int64_t& operator[](int axis) { return extents_[axis]; }
  int64_t num_elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= extents_[i];
    return n;
  }
  std::span<const int64_t> extents() const { return {extents_.data(), static_cast<size_t>(rank_)}; }

  friend bool operator==(const Shape& a, const Shape& b) {
    return a.rank_ == b.rank_ && a.extents_ == b.extents_;
  }

 private:
  std::array<int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

std::string to_string(const Shape& shape);  // "[7, 576]"

}  // namespace latent
