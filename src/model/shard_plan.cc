// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <optional>

#include "base/math.h"
#include "model/weight_map.h"

namespace latent::model {
namespace {

// MLP widths are cut between whole blocks of both the gate/up rows and the down columns.
int inter_grain(const ModelConfig& c) {
  return c.quant.block_rows > 0 ? std::lcm(c.quant.block_rows, c.quant.block_cols) : 1;
}

// Why `ranks` ranks cannot share the model, or nothing.
std::optional<std::string> obstacle(const ModelConfig& c, int ranks) {
  if (ranks == 1) return {};
  if (c.num_heads % ranks != 0) return fmt::format("{} heads do not divide evenly", c.num_heads);
  const int heads = c.num_heads / ranks;
  const int rows = c.quant.block_rows, cols = c.quant.block_cols;
  if (rows > 0 && (heads * c.qk_dim() % rows != 0 || heads * (c.nope_dim + c.v_dim) % rows != 0 ||
                   heads * c.v_dim % cols != 0))
    return fmt::format("{} heads are no whole number of {} x {} blocks", heads, rows, cols);
  const bool has_dense =
      std::find(c.layer_is_moe.begin(), c.layer_is_moe.end(), false) != c.layer_is_moe.end();
  for (const int inter : {has_dense ? c.dense_inter : 0, c.moe.shared_inter})
    if (inter > 0 && ceil_div(inter, inter_grain(c)) < ranks)
      return fmt::format("an MLP of width {} has only {} pieces of {}", inter,
                         ceil_div(inter, inter_grain(c)), inter_grain(c));
  if (c.moe.num_experts > 0 && c.moe.num_experts < ranks)
    return fmt::format("there are only {} experts", c.moe.num_experts);
  return {};
}

}  // namespace

std::vector<int> valid_rank_counts(const ModelConfig& config, int max_ranks) {
  std::vector<int> valid;
  for (int ranks = 1; ranks <= max_ranks; ++ranks)
    if (!obstacle(config, ranks)) valid.push_back(ranks);
  return valid;
}

Result<ShardPlan> plan_shard(const ModelConfig& c, const ShardSpec& shard) {
  if (shard.num_ranks < 1 || shard.rank < 0 || shard.rank >= shard.num_ranks)
    return make_error(ErrorCode::kInvalidArgument, "there is no rank {} of {}", shard.rank, shard.num_ranks);
  if (const auto why = obstacle(c, shard.num_ranks)) {
    std::string valid;
    for (const int n : valid_rank_counts(c, c.num_heads))
      valid += fmt::format("{}{}", valid.empty() ? "" : ", ", n);
    return make_error(ErrorCode::kUnsupported,
                      "{} cannot be shared by {} ranks: {} (valid numbers of ranks: {})", c.architecture_name,
                      shard.num_ranks, *why, valid);
  }
  const auto part = [&](int64_t total, int64_t grain) {
    return split_range(total, shard.rank, shard.num_ranks, grain);
  };
  return ShardPlan{.heads = part(c.num_heads, 1),
                   .dense_inter = part(c.dense_inter, inter_grain(c)),
                   .shared_inter = part(c.moe.shared_inter, inter_grain(c)),
                   .experts = part(c.moe.num_experts, 1)};
}

}  // namespace latent::model
