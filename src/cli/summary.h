// SPDX-License-Identifier: Apache-2.0
// A model by its parts: parameters and the memory they take, read off its graph.
#pragma once

#include <string>
#include <vector>

#include "graph/ir.h"
#include "model/config.h"

namespace latent::cli {

struct ModelPart {
  std::string name;  // "attention", "routed experts"
  int64_t parameters = 0;
  int64_t bytes = 0;
};

struct ModelSummary {
  std::vector<ModelPart> parts;  // in the order of the data
  int64_t parameters = 0;
  int64_t active_parameters = 0;  // that take part in one token: chosen experts, no embedding rows but one
  int64_t matrix_parameters =
      0;  // of the active ones, those in matrices that every prompt token goes through
  int64_t bytes = 0;
  int64_t absorbed_bytes = 0;  // what folding adds for the decode form
  int num_moe_layers = 0;
};

// `graph` is the model's as built, before any pass.
Result<ModelSummary> summarise(const model::ModelConfig& config, const graph::Graph& graph);

// Elements of a value of constant dims, and its bytes with the scales of block-quantised weights.
int64_t constant_elements(const graph::Value& value);
int64_t constant_bytes(const graph::Value& value);

}  // namespace latent::cli
