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

Result<Tensor> make_rope_table(const ModelConfig& config, int max_positions) {
  Result<Tensor> table = Tensor::create(DType::kF32, {max_positions, config.rope_dim});
  if (!table) return table.error().with_context("rope table");
  const std::vector<double> frequencies = rope_frequencies(config, max_positions);
  const double factor = rope_attention_factor(config.rope);
  const int half = config.rope_dim / 2;
  for (int position = 0; position < max_positions; ++position) {
    float* row = table->view().row<float>(position);
    for (int i = 0; i < half; ++i) {
      const double angle = position * frequencies[static_cast<size_t>(i)];
      row[i] = static_cast<float>(std::cos(angle) * factor);
      row[half + i] = static_cast<float>(std::sin(angle) * factor);
    }
  }
  return table;
}

}  // namespace latent::model
