// SPDX-License-Identifier: Apache-2.0
#include "cli/shapes.h"

#include <CLI/CLI.hpp>

#include "cli/exit_code.h"

namespace latent::cli {
namespace {

// The first layers, of which the last is MoE if any of the model's is: a short V3 is not three dense layers.
void keep_layers(model::ModelConfig& config, int layers) {
  const bool any_moe = std::count(config.layer_is_moe.begin(), config.layer_is_moe.end(), true) > 0;
  config.num_layers = layers;
  config.layer_is_moe.resize(static_cast<size_t>(layers));
  if (any_moe) config.layer_is_moe.back() = true;
}

}  // namespace

void add_model_or_shape(CLI::App& app, EngineFlags& flags, ShapeFlags& shape) {
  app.add_option("MODEL", flags.model, "Folder with config.json and safetensors");
  app.add_option("--shape", shape.name, "Instead of MODEL: a named shape")
      ->check(CLI::IsMember(model::shape_names()));
  app.add_option("--layers", shape.layers,
                 "With --shape: keep only the first layers, the last of them MoE if the model has any")
      ->check(CLI::Range(1, 1024));
  add_engine_flags(app, flags, /*needs_model=*/false);
}

Result<model::ModelConfig> chosen_config(const std::string& folder, const ShapeFlags& shape) {
  if (folder.empty() == shape.name.empty())
    return make_error(ErrorCode::kInvalidArgument, "give a MODEL folder or --shape NAME, one of them");
  if (!folder.empty()) {
    if (shape.layers > 0)
      return make_error(ErrorCode::kInvalidArgument, "--layers belongs to --shape, not to a MODEL");
    Result<model::ModelConfig> config = model::load_config(folder);
    if (!config) return model_error(config.error());
    return config;
  }
  Result<model::ModelConfig> config = model::named_shape(shape.name);
  if (!config) return config;
  if (shape.layers > config->num_layers)
    return make_error(ErrorCode::kInvalidArgument, "--layers {}; {} has {}", shape.layers, shape.name,
                      config->num_layers);
  if (shape.layers > 0) keep_layers(*config, shape.layers);
  return config;
}

}  // namespace latent::cli
