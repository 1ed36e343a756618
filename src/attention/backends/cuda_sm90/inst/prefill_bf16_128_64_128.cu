// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_sm90/prefill_launch.cuh"

namespace latent::attention::cuda {
template const Sm90Prefill* sm90_prefill<__nv_bfloat16, 128, 64, 128>(DType);
}  // namespace latent::attention::cuda
