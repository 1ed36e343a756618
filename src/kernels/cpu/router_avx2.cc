// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/router_simd.h"

namespace latent::kernels::cpu {

template void router<Avx2>(const ops::RouterParams&, const KernelContext&);

}  // namespace latent::kernels::cpu
