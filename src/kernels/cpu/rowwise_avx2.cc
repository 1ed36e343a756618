// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/rowwise_simd.h"

namespace latent::kernels::cpu {

LATENT_INSTANTIATE_ROWWISE(Avx2);

}  // namespace latent::kernels::cpu
