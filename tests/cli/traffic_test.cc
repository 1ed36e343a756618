// SPDX-License-Identifier: Apache-2.0
#include "cli/traffic.h"

#include <gtest/gtest.h>

#include "cli/fixture.h"
#include "cli/summary.h"
#include "model/build_graph.h"
#include "runtime/engine.h"

namespace latent::cli {
namespace {

using TrafficTest = TinyModelTest;

// Two ways to the same number: the weights that the compiled decode graph reads, absorbed ones in the place
// of kv_b, and the parameters that the config says are active.
TEST_F(TrafficTest, a_token_reads_its_active_parameters_once) {
  for (const char* name : {"v2-lite", "v3-yarn", "glm-4.7-flash"}) {
    SCOPED_TRACE(name);
    Result<model::LoadedModel> model =
        model::load_model(golden(name), {.compute = {}, .shard = {}, .progress = {}});
    ASSERT_TRUE(model.ok()) << model.error().message;
    Result<std::unique_ptr<runtime::Engine>> engine =
        runtime::Engine::create(*std::move(model), nullptr, {.num_threads = 1});
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    const model::ModelConfig& config = (*engine)->model().config;
    const Result<ModelSummary> summary =
        summarise(config, model::build_graph(config, {.types = model::weight_types(config),
                                                      .activation = DType::kF32,
                                                      .kv = model::kv_layout(config, DType::kF32),
                                                      .max_positions = (*engine)->model().max_positions}));
    ASSERT_TRUE(summary.ok());
    // Queries and keys of each layer look up one row of the rope table.
    const int64_t rope = int64_t{2} * config.num_layers * config.rope_dim * 4;
    EXPECT_EQ(decode_weight_bytes((*engine)->decode().graph(), (*engine)->model().weights),
              4 * summary->active_parameters + rope);
    int64_t regions = 0;
    for (const ByteRegion& region : weight_regions((*engine)->decode().graph(), (*engine)->model().weights))
      regions += static_cast<int64_t>(region.size());
    EXPECT_LE(regions, (*engine)->model().weights.num_bytes());
    EXPECT_GT(regions, 4 * summary->active_parameters / 2);
  }
}

}  // namespace
}  // namespace latent::cli
