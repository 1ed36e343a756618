// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cpu/lane_engine_f32.h"

namespace latent::attention::cpu {

const LaneEngine& f32_engine_avx512() { return kEngine; }

}  // namespace latent::attention::cpu
