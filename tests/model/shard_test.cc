// SPDX-License-Identifier: Apache-2.0
// Tensor-parallel shares: they reassemble to the whole, and the ranks' outputs sum to the whole block's.
#include <gtest/gtest.h>

#include <cmath>

#include "model/checkpoint_writer.h"
#include "model/model_runner.h"
#include "model/rope_table.h"
#include "tensor/convert.h"
#include "tensor/float_types.h"
#include "testing/compare.h"
#include "testing/temp_folder.h"

namespace latent::model {
namespace {

using testing::Logits;
using testing::TempFolder;
using testing::TinyCheckpoint;

// Sizes with many divisors; MLP widths that no number of ranks divides.
constexpr const char* kWide =
    R"({"num_attention_heads": 12, "num_key_value_heads": 12, "n_routed_experts": 16,
                                  "intermediate_size": 37, "moe_intermediate_size": 19})";

LoadedModel load(const TempFolder& folder, const ShardSpec& shard) {
  Result<LoadedModel> model = load_model(folder.path(), {.compute = {}, .shard = shard, .progress = {}});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return *std::move(model);
}

// Puts the ranks' views behind each other along the axis in which they differ from the whole; equal bits.
void expect_reassembled(const std::string& name, const TensorView& whole,
                        const std::vector<TensorView>& parts) {
  int axis = -1;
  for (int a = 0; a < whole.rank(); ++a)
    if (parts[0].dim(a) != whole.dim(a)) axis = a;
  if (axis < 0) {  // replicated
    for (const TensorView& part : parts) ASSERT_TRUE(testing::same_bits(part, whole)) << name;
    return;
  }
  int64_t begin = 0;
  for (const TensorView& part : parts) {
    const int64_t end = begin + part.dim(axis);
    ASSERT_LE(end, whole.dim(axis)) << name;
    ASSERT_TRUE(testing::same_bits(part, whole.slice(axis, begin, end))) << name;
    begin = end;
  }
  ASSERT_EQ(begin, whole.dim(axis)) << name;
}

void expect_shares_reassemble(const TempFolder& folder, const ModelConfig& config, int ranks) {
  SCOPED_TRACE(ranks);
  const LoadedModel whole = load(folder, {});
  std::vector<LoadedModel> parts;
  for (int rank = 0; rank < ranks; ++rank) parts.push_back(load(folder, {rank, ranks}));
  for (const auto& [name, entry] : whole.weights.entries()) {
    std::vector<TensorView> values, scales;
    for (const LoadedModel& part : parts) {
      values.push_back(part.weights.view(name).values);
      scales.push_back(part.weights.view(name).scales);
    }
    expect_reassembled(name, entry.values.view(), values);
    if (!entry.scales.view().empty()) expect_reassembled(name + " scales", entry.scales.view(), scales);
  }
}

TEST(ShardPlan, shares_reassemble_for_every_number_of_ranks) {
  TempFolder folder;
  TinyCheckpoint checkpoint(testing::tiny_config(kWide));
  checkpoint.write(folder.path());
  const std::vector<int> valid = valid_rank_counts(checkpoint.config(), 16);
  EXPECT_EQ(valid, (std::vector<int>{1, 2, 3, 4, 6, 12}));
  for (int ranks = 1; ranks <= 16; ++ranks) {
    if (std::find(valid.begin(), valid.end(), ranks) != valid.end())
      expect_shares_reassemble(folder, checkpoint.config(), ranks);
    else
      EXPECT_NE(plan_shard(checkpoint.config(), {0, ranks}).error().message.find("1, 2, 3, 4, 6, 12"),
                std::string::npos);
  }
}

TEST(ShardPlan, quantised_shares_reassemble_in_whole_blocks) {
  TempFolder folder;
  // 12 heads of 32 + 32 rows and 32 columns: whole blocks for 1 and 3 ranks. MLPs of 300 and 400 are 3 and 4
  // blocks.
  TinyCheckpoint checkpoint(
      testing::tiny_fp8_config(
          R"({"num_attention_heads": 12, "num_key_value_heads": 12, "qk_nope_head_dim": 32,
      "qk_rope_head_dim": 32, "v_head_dim": 32, "moe_intermediate_size": 400, "n_routed_experts": 4})"),
      DType::kF8E4M3);
  checkpoint.write(folder.path());
  const std::vector<int> valid = valid_rank_counts(checkpoint.config(), 16);
  EXPECT_EQ(valid, (std::vector<int>{1, 3}));
  for (const int ranks : valid) expect_shares_reassemble(folder, checkpoint.config(), ranks);
  const Result<ShardPlan> refused = plan_shard(checkpoint.config(), {0, 2});
  EXPECT_NE(
      refused.error().message.find("no whole number of 128 x 128 blocks (valid numbers of ranks: 1, 3)"),
      std::string::npos)
      << refused.error().message;
}

// D5, H4
TEST(ShardPlan, published_models_split_or_are_refused_with_the_valid_sizes) {
  const ModelConfig v3 = named_shape("v3").value();
  for (const int ranks : valid_rank_counts(v3, 128)) {
    int64_t rows = 0, experts = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const ShardPlan plan = plan_shard(v3, {rank, ranks}).value();
      EXPECT_EQ(plan.dense_inter.begin, rows);
      EXPECT_EQ(plan.dense_inter.begin % 128, 0);
      EXPECT_EQ(plan.experts.begin, experts);
      rows = plan.dense_inter.end;
      experts = plan.experts.end;
    }
    EXPECT_EQ(rows, 18432);
    EXPECT_EQ(experts, 256);
  }
  EXPECT_NE(plan_shard(v3, {0, 3})
                .error()
                .message.find("128 heads do not divide evenly (valid numbers of ranks: 1, 2, 4, 8, 16)"),
            std::string::npos)
      << plan_shard(v3, {0, 3}).error().message;
  EXPECT_EQ(plan_shard(v3, {0, 32}).error().code, ErrorCode::kUnsupported);  // a shared expert of 16 blocks
  EXPECT_EQ(plan_shard(v3, {2, 2}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(plan_shard(v3, {0, 0}).error().code, ErrorCode::kInvalidArgument);
}

// The sum of what the ranks add to the residual; `layer` 0 is dense, 1 is MoE.
Logits sum_of_ranks(const TempFolder& folder, int ranks, int layer, bool attention,
                    std::span<const int32_t> tokens) {
  Logits sum;
  for (int rank = 0; rank < ranks; ++rank) {
    LoadedModel model = load(folder, {rank, ranks});
    const ops::KvLayout layout = kv_layout(model.config, model.activation, 16);
    const BuildOptions options{.types = weight_types(model.weights),
                               .activation = model.activation,
                               .kv = layout,
                               .max_positions = model.max_positions};
    const ShardPlan plan = plan_shard(model.config, {rank, ranks}).value();
    const auto build = attention ? build_attention_block : build_mlp_block;
    const Logits part = testing::run_graph(build(model.config, options, layer, plan), &model.weights, layout,
                                           model.config.num_layers, tokens);
    if (rank == 0) sum = Logits(part.size(), std::vector<float>(part[0].size(), 0.0f));
    for (size_t i = 0; i < part.size(); ++i)
      for (size_t j = 0; j < part[i].size(); ++j) sum[i][j] += part[i][j];
  }
  return sum;
}

void expect_ranks_sum_to_the_whole(const TempFolder& folder, const ModelConfig& c,
                                   const std::vector<int>& rank_counts) {
  const std::vector<int32_t> tokens = {3, 1, 41, 5, 9, 2, 6, 5, 3, 5,
                                       8, 9, 7,  9, 3, 2, 3, 8, 46};  // more than a page
  for (const auto& [layer, attention] : {std::pair(0, true), std::pair(0, false), std::pair(1, false)}) {
    const Logits whole = sum_of_ranks(folder, 1, layer, attention, tokens);
    float most = 0;
    for (const auto& row : whole)
      for (const float x : row) most = std::max(most, std::fabs(x));
    ASSERT_GT(most, 0);
    // The same products in another order: n terms are off by at most n u times their size.
    const int64_t terms =
        attention ? c.num_heads * c.v_dim
                  : c.dense_inter + (c.moe.expert_inter + c.moe.shared_inter) * c.moe.router.top_k;
    const double bound = unit_roundoff(DType::kF32) * static_cast<double>(terms) * most;
    for (const int ranks : rank_counts) {
      const Logits sum = sum_of_ranks(folder, ranks, layer, attention, tokens);
      for (size_t i = 0; i < whole.size(); ++i)
        for (size_t j = 0; j < whole[i].size(); ++j)
          ASSERT_NEAR(sum[i][j], whole[i][j], bound)
              << ranks << " ranks, layer " << layer << (attention ? " attention" : " mlp");
    }
  }
}

TEST(Shards, outputs_of_all_ranks_sum_to_the_whole) {
  TempFolder folder;
  TinyCheckpoint checkpoint(testing::tiny_config(kWide));
  checkpoint.write(folder.path());
  expect_ranks_sum_to_the_whole(folder, checkpoint.config(), {2, 3, 4, 12});
}

TEST(Shards, outputs_sum_without_query_latents_too) {
  TempFolder folder;
  std::string text = testing::tiny_config(kWide);
  text.replace(text.find("\"q_lora_rank\":14"), 16, "\"q_lora_rank\":null");
  TinyCheckpoint checkpoint(text);
  ASSERT_EQ(checkpoint.config().q_rank, 0);
  checkpoint.write(folder.path());
  expect_ranks_sum_to_the_whole(folder, checkpoint.config(), {2, 6});
}

}  // namespace
}  // namespace latent::model
