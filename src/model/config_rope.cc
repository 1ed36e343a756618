// SPDX-License-Identifier: Apache-2.0
#include "model/config_rope.h"

#include <algorithm>
#include <cmath>

namespace latent::model {
namespace {

constexpr double kMaxFactor = 1e6;
constexpr int kMaxPositions = 1 << 28;

// The object that holds the rope keys: rope_scaling wins over rope_parameters; per layer type if it is
// nested.
ConfigReader rope_object(const ConfigReader& reader) {
  ConfigReader object = reader.object(reader.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  const std::vector<std::string> nested = object.object_keys();
  if (nested.empty()) return object;
  const bool full = std::find(nested.begin(), nested.end(), "full_attention") != nested.end();
  if (nested.size() == 1 || (full && !object.has("sliding_attention")))
    return object.object(full ? "full_attention" : nested[0].c_str());
  reader.fail(ErrorCode::kUnsupported,
              "'rope_parameters' differ by layer type, which no supported architecture has");
  return object;
}

RopeConfig::Type parse_type(const ConfigReader& reader, const ConfigReader& object) {
  const std::string type = object.text("rope_type", object.text("type", "default"));
  if (type == "yarn") return RopeConfig::Type::kYarn;
  if (type == "longrope") return RopeConfig::Type::kLongRope;
  if (type != "default")
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("rope type '{}' is not supported (default, yarn and longrope are)", type));
  return RopeConfig::Type::kDefault;
}

void parse_scaling(const ConfigReader& object, int max_positions, RopeConfig* rope) {
  rope->original_max_positions =
      object.integer("original_max_position_embeddings", max_positions, 1, kMaxPositions);
  const double ratio = static_cast<double>(max_positions) / rope->original_max_positions;
  rope->factor = object.number("factor", ratio, 1e-3, kMaxFactor);
  if (object.has("attention_factor"))
    rope->attention_factor = object.number("attention_factor", 1, 1e-6, kMaxFactor);
}

void parse_yarn(const ConfigReader& object, RopeConfig* rope) {
  // transformers takes 0 for absent in all four.
  const auto number_or = [&](const char* key, double fallback) {
    const double value = object.number(key, fallback, 0, kMaxFactor);
    return value == 0 ? fallback : value;
  };
  rope->beta_fast = number_or("beta_fast", 32);
  rope->beta_slow = number_or("beta_slow", 1);
  rope->mscale = number_or("mscale", 0);
  rope->mscale_all_dim = number_or("mscale_all_dim", 0);
  rope->truncate = object.boolean("truncate", true);
}

void parse_longrope(const ConfigReader& reader, const ConfigReader& object, int rope_dim, RopeConfig* rope) {
  rope->short_factors = object.numbers("short_factor", 1e-6, kMaxFactor);
  rope->long_factors = object.numbers("long_factor", 1e-6, kMaxFactor);
  const auto half = static_cast<size_t>(rope_dim / 2);
  for (const auto& [name, factors] :
       {std::pair("short_factor", &rope->short_factors), {"long_factor", &rope->long_factors}})
    if (factors->size() != half)
      reader.fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' of longrope must hold qk_rope_head_dim / 2 = {} numbers, not {}", name,
                              half, factors->size()));
  if (rope->factor > 1 && rope->original_max_positions < 2)
    reader.fail(ErrorCode::kInvalidArgument,
                "'original_max_position_embeddings' of longrope must be at least 2");
}

// transformers' class default for Mistral 4 when the config says nothing.
RopeConfig default_mistral4() {
  RopeConfig rope{.type = RopeConfig::Type::kYarn, .factor = 128, .original_max_positions = 8192};
  rope.mscale = rope.mscale_all_dim = 1;
  rope.query_scale_beta = 0.1;
  return rope;
}

// Only the whole rope width is ever rotated here; Mistral 4 states it as a fraction of the whole head.
void check_partial_factor(const ConfigReader& reader, const ConfigReader& object, const ModelConfig& config) {
  const double factor =
      object.number("partial_rotary_factor", reader.number("partial_rotary_factor", 0, 0, 1), 0, 1);
  const int head = config.architecture == Architecture::kMistral4 ? config.qk_dim() : config.rope_dim;
  if (factor != 0 && std::lround(head * factor) != config.rope_dim)
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("'partial_rotary_factor' {} does not rotate the {} of qk_rope_head_dim", factor,
                            config.rope_dim));
}

ops::RopeStyle parse_style(const ConfigReader& reader, Architecture architecture) {
  if (architecture == Architecture::kMiniCpm3) return ops::RopeStyle::kHalves;
  if (architecture == Architecture::kDeepseekV2) return ops::RopeStyle::kInterleaved;
  return reader.boolean("rope_interleave", true) ? ops::RopeStyle::kInterleaved : ops::RopeStyle::kHalves;
}

}  // namespace

void parse_rope(const ConfigReader& reader, ModelConfig* config) {
  RopeConfig& rope = config->rope;
  const bool mistral4 = config->architecture == Architecture::kMistral4;
  const bool silent = !reader.has("rope_scaling") && !reader.has("rope_parameters");
  if (mistral4 && silent) rope = default_mistral4();
  rope.style = parse_style(reader, config->architecture);
  if (mistral4 && silent) return;
  const ConfigReader object = rope_object(reader);
  rope.type = parse_type(reader, object);
  // Frequencies are powers of theta, the yarn ramp divides by its logarithm.
  rope.theta = object.number("rope_theta", reader.number("rope_theta", 10000, 1.0001, 1e15), 1.0001, 1e15);
  check_partial_factor(reader, object, *config);
  if (rope.type != RopeConfig::Type::kDefault || mistral4)
    parse_scaling(object, config->max_positions, &rope);
  if (rope.type == RopeConfig::Type::kYarn) parse_yarn(object, &rope);
  if (rope.type == RopeConfig::Type::kLongRope) parse_longrope(reader, object, config->rope_dim, &rope);
  if (mistral4) rope.query_scale_beta = object.number("llama_4_scaling_beta", 0, 0, kMaxFactor);
  if (rope.query_scale_beta != 0 && config->nope_dim % 2 != 0)
    reader.fail(
        ErrorCode::kUnsupported,
        fmt::format("'qk_nope_head_dim' must be even with 'llama_4_scaling_beta', not {}", config->nope_dim));
}

}  // namespace latent::model
