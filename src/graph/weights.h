// SPDX-License-Identifier: Apache-2.0
// WeightStore: what a graph's weight values are bound to. Filled by the model loader, extended by constant
// folding, shared by every executor of the model. Not thread-safe while it is filled; afterwards reading is.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "ops/linear.h"
#include "tensor/tensor.h"

namespace latent::graph {

class WeightStore {
 public:
  struct Entry {
    Tensor values;
    Tensor scales;  // empty unless quantised
    int block_rows = 0;
    int block_cols = 0;
  };

  // CHECKs that the name is new.
  void add(std::string name, Entry entry);
  bool has(std::string_view name) const { return entries_.find(name) != entries_.end(); }
  // CHECKs that it is there; the loader has made sure of that.
  ops::WeightView view(std::string_view name) const;
  int64_t num_bytes() const;
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }

 private:
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace latent::graph
