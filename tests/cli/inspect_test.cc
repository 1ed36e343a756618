// SPDX-License-Identifier: Apache-2.0
// latent inspect, run as a user runs it, on a tiny checkpoint.
#include "cli/fixture.h"

namespace latent::cli {
namespace {

using InspectCommand = TinyModelTest;

TEST_F(InspectCommand, inspect_says_what_a_model_is_without_reading_its_weights) {
  const Outcome run = run_latent({"inspect", model(), "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json facts = parse(run.out);
  EXPECT_EQ(facts["architecture"], "DeepseekV3ForCausalLM");
  EXPECT_EQ(facts["layers"], 3);
  EXPECT_EQ(facts["limits"]["context"], kContext);
  EXPECT_EQ(facts["cache_bytes_per_token"], 3 * (40 + 8) * 4);
  int64_t parameters = 0;
  for (const auto& [name, part] : facts["parts"].items()) parameters += part["parameters"].get<int64_t>();
  EXPECT_EQ(facts["parameters"], parameters);
  EXPECT_LT(facts["active_parameters"], facts["parameters"]);
  const Json v3 = parse(run_latent({"inspect", "--shape", "v3", "--json"}).out);
  EXPECT_NEAR(v3["parameters"].get<double>(), 671e9, 1e9) << "DeepSeek-V3 without its MTP layer";
  EXPECT_NEAR(v3["active_parameters"].get<double>(), 37e9, 1e9);
  EXPECT_EQ(v3["fp8_block"], (Json{128, 128}));
  EXPECT_TRUE(contains(run_latent({"inspect", "--shape", "v3"}).out, "fp8 in blocks of 128 x 128"));
  EXPECT_EQ(facts["fp8_block"], (Json{0, 0}));
  for (const char* shape : {"v2-lite", "kimi-k2", "glm-4.7-flash", "minicpm3"}) {
    const Outcome table = run_latent({"inspect", "--shape", shape});
    EXPECT_EQ(table.exit_code, 0) << table.err;
    EXPECT_TRUE(contains(table.out, "parameters")) << shape;
  }
}

TEST_F(InspectCommand, inspect_draws_both_graphs_before_and_after_the_passes) {
  for (const char* graph : {"prefill", "decode"})
    for (const Arguments& passes : {Arguments{}, Arguments{"--before-passes"}}) {
      const Arguments base = Arguments{"inspect", model(), "--graph", graph} + passes;
      const Outcome text = run_latent(base);
      ASSERT_EQ(text.exit_code, 0) << text.err;
      EXPECT_TRUE(contains(text.out, "mla_attention"));
      EXPECT_EQ(contains(text.out, "rope_kv_cache_write"), passes.empty());
      EXPECT_EQ(contains(text.err, "absorb_weights"), passes.empty()) << text.err;
      EXPECT_EQ(run_latent(base + Arguments{"--format", "dot"}).out.rfind("digraph", 0), 0u);
      EXPECT_TRUE(contains(run_latent(base + Arguments{"--format", "svg"}).out, "<svg"));
    }
  const Outcome switched =
      run_latent({"inspect", model(), "--graph", "decode", "--disable-pass", "fuse_rope_cache_write"});
  EXPECT_FALSE(contains(switched.out, "rope_kv_cache_write"));
}

}  // namespace
}  // namespace latent::cli
