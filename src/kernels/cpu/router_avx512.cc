// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/router_simd.h"

namespace latent::kernels::cpu {

template void router<Avx512>(const ops::RouterParams&, const KernelContext&);

}  // namespace latent::kernels::cpu
