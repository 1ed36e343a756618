// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_sm90/narrow_launch.cuh"

namespace latent::attention::cuda {
template const Sm90Instance* sm90_instance<__nv_bfloat16, 256, 32, Codes::kNone>(int);
}  // namespace latent::attention::cuda
