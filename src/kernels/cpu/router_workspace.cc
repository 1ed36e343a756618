// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/router_workspace.h"

#include "base/math.h"
#include "kernels/cpu/router.h"

namespace latent::kernels::cpu {

size_t RouterScratch::bytes(const ops::RouterAttrs& attrs) {
  const auto experts = static_cast<size_t>(attrs.num_experts),
             num_groups = static_cast<size_t>(attrs.num_groups);
  return round_up<size_t>(
      experts * (sizeof(double) + 2 * sizeof(float)) + num_groups * (sizeof(float) + sizeof(int32_t)), 64);
}

RouterScratch::RouterScratch(const ops::RouterAttrs& attrs, std::byte* workspace, int thread)
    : powers(reinterpret_cast<double*>(workspace + static_cast<size_t>(thread) * bytes(attrs))),
      scores(reinterpret_cast<float*>(powers + attrs.num_experts)),
      choices(scores + attrs.num_experts),
      group_scores(choices + attrs.num_experts),
      groups(reinterpret_cast<int32_t*>(group_scores + attrs.num_groups)) {}

size_t router_workspace(const ops::RouterParams& p, int num_threads) {
  return RouterScratch::bytes(p.attrs) * static_cast<size_t>(num_threads);
}

}  // namespace latent::kernels::cpu
