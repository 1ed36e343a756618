// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_sm80/prefill_launch.cuh"

namespace latent::attention::cuda {
template const Sm80Prefill* sm80_prefill<__nv_bfloat16, Sm80PrefillConfig<192, 64, 256>>();
}  // namespace latent::attention::cuda
