// SPDX-License-Identifier: Apache-2.0
// The rope keys of a config, in their old (rope_scaling, type) and new (rope_parameters, rope_type)
// spellings.
#pragma once

#include "model/config.h"
#include "model/config_reader.h"

namespace latent::model {

// Fills config->rope, and lowers config->max_positions where positions beyond would need more than rope.
// Needs architecture, nope_dim, rope_dim and max_positions. Problems go to the reader's status.
void parse_rope(const ConfigReader& reader, ModelConfig* config);

}  // namespace latent::model
