// SPDX-License-Identifier: Apache-2.0
// From a model folder to weights in memory. Strict: nothing is allocated until every expected tensor has been
// found once, with the shape that the config asks for; every element is checked finite (contract C6).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/weights.h"
#include "model/config.h"
#include "model/weight_map.h"

namespace latent::model {

// Called from one thread at a time, with bytes of weights done and in all; false ends the work with
// kCancelled.
using LoadProgress = std::function<bool(int64_t done, int64_t total)>;

struct LoadOptions {
  int max_positions = 0;         // context limit to serve; 0: default_context(config)
  std::optional<DType> compute;  // --compute: f32 or bf16; else it follows the checkpoint
  int num_threads = 1;
  ShardSpec shard;
  LoadProgress progress;
};

struct LoadReport {
  std::vector<int> skipped_layers;           // beyond num_layers (MTP), by number
  std::vector<std::string> unknown_tensors;  // in the checkpoint, but of no use
  std::vector<std::string> stale_tensors;    // in a shard, but not assigned to it by the index
  int num_files = 0;
  int64_t bytes = 0;  // of weights and scales in memory
  double seconds = 0;
};

struct LoadedModel {
  ModelConfig config;
  graph::WeightStore weights;  // of weight_map.h, and the tables of rope_table.h
  DType activation = DType::kBF16;
  int max_positions = 0;  // rows of the rope table: the limit that is served
  LoadReport report;
};

Result<LoadedModel> load_model(const std::filesystem::path& folder, const LoadOptions& options);

// kExhausted, with both numbers, where the machine has not as much memory. Asked before weights are made:
// memory is promised to whoever asks, and who then writes to what is not there is killed without a word.
Status check_memory(int64_t weight_bytes);

// f32 for checkpoints in f32 or f16, bf16 for bf16 and block-fp8 ones; `compute` overrides.
DType activation_dtype(DType checkpoint_dtype, std::optional<DType> compute = {});

// Context limit served unless the user asks for another: the checkpoint's, except for longrope, whose limit
// is the original one (a larger one selects the long factors for every position).
int default_context(const ModelConfig& config);
// The limit for a request of `wanted` positions (0: the default); kInvalidArgument above the checkpoint's.
Result<int> served_context(const ModelConfig& config, int wanted);

// Weights of a config, drawn from a seed, for benchmarks. `dtype` is the type of the large matrices: f32,
// f16, bf16 or f8_e4m3 (in blocks of 128 x 128 unless the config says otherwise). Same seed, same bits,
// whatever the number of threads.
struct RandomWeightsOptions {
  uint64_t seed = 1;
  DType dtype = DType::kBF16;
  int max_positions = 4096;
  int num_threads = 1;
  LoadProgress progress;
};
Result<LoadedModel> random_weights(const ModelConfig& config, const RandomWeightsOptions& options);

}  // namespace latent::model
