// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_sm80/prefill_launch.cuh"

namespace latent::attention::cuda {
template const Sm80Prefill* sm80_prefill<__half, Sm80PrefillConfig<128, 64, 128>>();
}  // namespace latent::attention::cuda
