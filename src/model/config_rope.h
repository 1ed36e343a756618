// SPDX-License-Identifier: Apache-2.0
// The rope keys of a config, in their old (rope_scaling, type) and new (rope_parameters, rope_type)
// spellings.
#pragma once

#include "model/config.h"
#include "model/config_reader.h"

namespace latent::model {

// Fills config->rope from its other fields (architecture, nope_dim, rope_dim, max_positions) and the reader's
// keys. Problems go to the reader's status.
void parse_rope(const ConfigReader& reader, ModelConfig* config);

}  // namespace latent::model
