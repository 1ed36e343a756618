// SPDX-License-Identifier: Apache-2.0
#include "exec/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "base/math.h"
#include "device/host_buffer.h"

namespace latent::exec {
namespace {

constexpr auto kAlignment = static_cast<int64_t>(HostBuffer::kAlignment);

bool overlap_in_time(const LiveRange& a, const LiveRange& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

MemoryPlan plan_memory(const std::vector<LiveRange>& ranges) {
  std::vector<size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return ranges[a].bytes > ranges[b].bytes; });

  MemoryPlan plan;
  plan.offsets.resize(ranges.size());
  std::vector<size_t> placed;  // by ascending offset
  for (const size_t i : order) {
    const int64_t bytes = round_up(ranges[i].bytes, kAlignment);
    int64_t offset = 0;
    for (const size_t j : placed) {
      if (!overlap_in_time(ranges[i], ranges[j])) continue;
      if (plan.offsets[j] >= offset + bytes) break;
      offset = std::max(offset, plan.offsets[j] + round_up(ranges[j].bytes, kAlignment));
    }
    plan.offsets[i] = offset;
    plan.total_bytes = std::max(plan.total_bytes, offset + bytes);
    const auto at = std::upper_bound(placed.begin(), placed.end(), offset,
                                     [&](int64_t o, size_t j) { return o < plan.offsets[j]; });
    placed.insert(at, i);
  }
  return plan;
}

}  // namespace latent::exec
