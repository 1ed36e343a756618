// SPDX-License-Identifier: Apache-2.0
// Implementations of the router.
#include "kernels/cpu/router.h"

#include "kernels/ref/rowwise.h"

namespace latent::kernels {

template <>
std::span<const Implementation<ops::RouterParams>> implementations<ops::RouterParams>() {
  using Params = ops::RouterParams;
  using cpu::Avx2, cpu::Avx512, cpu::refuse_without;
  static constexpr Implementation<Params> kAll[] = {
      {"cpu_avx512", refuse_without<Avx512, Params>, cpu::router_workspace, cpu::router<Avx512>},
      {"cpu_avx2", refuse_without<Avx2, Params>, cpu::router_workspace, cpu::router<Avx2>},
      {"ref", nullptr, ref::router_workspace, ref::router},
  };
  return kAll;
}

}  // namespace latent::kernels
