// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_sm90/wide_launch.cuh"

namespace latent::attention::cuda {
template const Sm90Instance* wide_instance<__half, 256, 64>();
}  // namespace latent::attention::cuda
