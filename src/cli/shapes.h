// SPDX-License-Identifier: Apache-2.0
// Commands that take a model's folder or, without a checkpoint, a named shape.
#pragma once

#include "cli/flags.h"

namespace latent::cli {

struct ShapeFlags {
  std::string name;
  int layers = 0;  // 0: all
};

// MODEL or --shape NAME [--layers N], and the engine flags.
void add_model_or_shape(CLI::App& app, EngineFlags& flags, ShapeFlags& shape);

// The config of the folder or shape; kInvalidArgument if neither or both are given. --layers keeps the first
// layers and at least one of each kind.
Result<model::ModelConfig> chosen_config(const std::string& folder, const ShapeFlags& shape);

}  // namespace latent::cli
