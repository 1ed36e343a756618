// SPDX-License-Identifier: Apache-2.0
// The k best of a list in the router's total order (value descending, id ascending).
#pragma once

#include <cstdint>

namespace latent::kernels::cpu {

// Keeps the best `capacity` of the ids offered so far, in order. Ids must be offered in ascending order: a
// later id then loses every tie, and one comparison refuses most of them.
class BestIds {
 public:
  // `ids` has room for `capacity` ids; `values` is indexed by id and outlives the object.
  BestIds(const float* values, int32_t* ids, int capacity)
      : values_(values), ids_(ids), capacity_(capacity) {}

  void offer(int32_t id) {
    const float value = values_[id];
    if (size_ == capacity_ && !(value > values_[ids_[size_ - 1]])) return;
    int place = size_ < capacity_ ? size_++ : size_ - 1;
    for (; place > 0 && value > values_[ids_[place - 1]]; --place) ids_[place] = ids_[place - 1];
    ids_[place] = id;
  }

 private:
  const float* values_;
  int32_t* ids_;
  int capacity_;
  int size_ = 0;
};

}  // namespace latent::kernels::cpu
