// SPDX-License-Identifier: Apache-2.0
#include "graph/weights.h"

#include "base/check.h"

namespace latent::graph {

void WeightStore::add(std::string name, Entry entry) {
  const bool inserted = entries_.emplace(name, std::move(entry)).second;
  CHECK(inserted, "two weights named {}", name);
}

ops::WeightView WeightStore::view(std::string_view name) const {
  const auto it = entries_.find(name);
  CHECK(it != entries_.end(), "no weight named {}", name);
  const Entry& e = it->second;
  return {.values = e.values.view(),
          .scales = e.scales.view(),
          .block_rows = e.block_rows,
          .block_cols = e.block_cols};
}

int64_t WeightStore::num_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, e] : entries_)
    bytes += e.values.view().num_bytes() + (e.scales.view().empty() ? 0 : e.scales.view().num_bytes());
  return bytes;
}

}  // namespace latent::graph
