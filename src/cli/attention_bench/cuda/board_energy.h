// SPDX-License-Identifier: Apache-2.0
// Energy of the GPU's board, from the driver's management library if the machine has it.
#pragma once

#include <optional>

namespace latent::cli {

// Joules since the driver started, of GPU `device`; the counter moves in steps of up to a tenth of a second's
// energy.
std::optional<double> board_joules(int device);

}  // namespace latent::cli
