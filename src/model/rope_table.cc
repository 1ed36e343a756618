// SPDX-License-Identifier: Apache-2.0
#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace latent::model {
namespace {

// y(factor, m), YaRN's magnitude.
double yarn_magnitude(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// The ends of YaRN's ramp, in pairs of dimensions.
std::pair<double, double> yarn_range(const RopeConfig& rope, int rope_dim) {
  const auto dimension = [&](double rotations) {
    return rope_dim * std::log(rope.original_max_positions / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double low = dimension(rope.beta_fast), high = dimension(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rope_dim - 1.0);
  return {low, low == high ? high + 0.001 : high};
}

// What frequency i is multiplied by.
double stretch(const RopeConfig& rope, std::pair<double, double> yarn, int i, int max_positions) {
  switch (rope.type) {
    case RopeConfig::Type::kDefault:
      return 1;
    case RopeConfig::Type::kYarn: {
      const double ramp = std::clamp((i - yarn.first) / (yarn.second - yarn.first), 0.0, 1.0);
      return ramp / rope.factor + (1 - ramp);
    }
    case RopeConfig::Type::kLongRope:
      return 1 / (max_positions > rope.original_max_positions ? rope.long_factors
                                                              : rope.short_factors)[static_cast<size_t>(i)];
  }
  return 1;
}

// A row a position: cosines, then sines, of position times each frequency, times magnitude(position).
template <class Magnitude>
Result<Tensor> make_table(const std::vector<double>& frequencies, int max_positions, Magnitude magnitude) {
  const auto half = static_cast<int64_t>(frequencies.size());
  Result<Tensor> table = Tensor::create(DType::kF32, {max_positions, 2 * half});
  if (!table) return table;
  for (int position = 0; position < max_positions; ++position) {
    float* row = table->view().row<float>(position);
    const double m = magnitude(position);
    for (int64_t i = 0; i < half; ++i) {
      const double angle = position * frequencies[static_cast<size_t>(i)];
      row[i] = static_cast<float>(std::cos(angle) * m);
      row[half + i] = static_cast<float>(std::sin(angle) * m);
    }
  }
  return table;
}

}  // namespace

std::vector<double> rope_frequencies(const ModelConfig& config, int max_positions) {
  const RopeConfig& rope = config.rope;
  std::pair<double, double> yarn{0, 1};
  if (rope.type == RopeConfig::Type::kYarn) yarn = yarn_range(rope, config.rope_dim);
  std::vector<double> frequencies;
  for (int i = 0; i < config.rope_dim / 2; ++i)
    frequencies.push_back(std::pow(rope.theta, -2.0 * i / config.rope_dim) *
                          stretch(rope, yarn, i, max_positions));
  return frequencies;
}

double rope_attention_factor(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.type == RopeConfig::Type::kDefault || rope.factor <= 1) return 1;
  if (rope.type == RopeConfig::Type::kLongRope)
    return std::sqrt(1 + std::log(rope.factor) / std::log(rope.original_max_positions));
  if (rope.mscale == 0 || rope.mscale_all_dim == 0) return yarn_magnitude(rope.factor, 1);
  return yarn_magnitude(rope.factor, rope.mscale) / yarn_magnitude(rope.factor, rope.mscale_all_dim);
}

double mla_softmax_scale(int qk_dim, const RopeConfig& rope) {
  double magnitude = 1;
  if (rope.type != RopeConfig::Type::kDefault && rope.mscale_all_dim != 0)
    magnitude = yarn_magnitude(rope.factor, rope.mscale_all_dim);
  return magnitude * magnitude / std::sqrt(qk_dim);
}

double query_scale(const RopeConfig& rope, int position) {
  if (rope.query_scale_beta == 0) return 1;
  return 1 + rope.query_scale_beta * std::log(1 + position / rope.original_max_positions);
}

Result<Tensor> make_rope_table(const ModelConfig& config, int max_positions) {
  const double factor = rope_attention_factor(config.rope);
  return make_table(rope_frequencies(config, max_positions), max_positions, [&](int) { return factor; });
}

Status add_rope_tables(const ModelConfig& config, int max_positions, graph::WeightStore* weights) {
  const auto add = [&](const char* name, Result<Tensor> table) -> Status {
    if (!table) return table.error().with_context(name);
    weights->add(name, {.values = *std::move(table), .scales = {}});
    return {};
  };
  if (Status s = add(kRopeTableName, make_rope_table(config, max_positions)); !s) return s;
  if (config.rope.query_scale_beta == 0) return {};
  const auto scale = [&](int position) { return query_scale(config.rope, position); };
  const double factor = rope_attention_factor(config.rope);
  Result<Tensor> rotated = make_table(rope_frequencies(config, max_positions), max_positions,
                                      [&](int position) { return factor * scale(position); });
  if (Status s = add(kQueryRopeTableName, std::move(rotated)); !s) return s;
  const std::vector<double> still(static_cast<size_t>(config.nope_dim / 2), 0.0);
  return add(kQueryScaleTableName, make_table(still, max_positions, scale));
}

}  // namespace latent::model
