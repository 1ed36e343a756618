// SPDX-License-Identifier: Apache-2.0
// Whole models against transformers, on the checkpoints of tests/golden/models (see its README).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/safetensors.h"
#include "model/model_runner.h"
#include "tensor/convert.h"
#include "tensor/float_types.h"

namespace latent::model {
namespace {

using testing::Logits;
using testing::ModelRunner;

std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(LATENT_SOURCE_DIR) / "tests/golden/models" / name;
}

nlohmann::json expected_json(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(fixture(name) / "expected.json"));
}

Logits read_logits(const std::filesystem::path& path, const std::string& tensor) {
  const auto file = io::SafetensorsFile::open(path).value();
  const io::FileTensor* t = file.find(tensor);
  Logits rows;
  const auto cols = static_cast<size_t>(t->dims[1]);
  for (size_t i = 0; i < static_cast<size_t>(t->dims[0]); ++i) {
    rows.emplace_back(cols);
    std::memcpy(rows.back().data(), t->bytes.data() + i * cols * sizeof(float), cols * sizeof(float));
  }
  return rows;
}

Logits expected_logits(const std::string& name, const std::string& tensor) {
  return read_logits(fixture(name) / "expected.safetensors", tensor);
}

float largest(const Logits& rows) {
  float most = 0;
  for (const auto& row : rows)
    for (const float x : row) most = std::max(most, std::fabs(x));
  return most;
}

// The largest difference, or infinity where one is not finite.
double difference(const Logits& got, const Logits& want) {
  double worst = got.size() == want.size() ? 0 : INFINITY;
  for (size_t i = 0; i < got.size() && i < want.size(); ++i)
    for (size_t j = 0; j < got[i].size(); ++j) {
      const double d = std::fabs(got[i][j] - want[i][j]);
      worst = std::max(worst, std::isfinite(d) ? d : INFINITY);
    }
  return worst;
}

// The lengths of the dot products that follow each other from embedding to logit. A sum of n terms is off by
// at most n u times the sum of magnitudes, so this many u, times the size of the logits, bounds the error to
// first order.
int64_t path_length(const ModelConfig& c) {
  const int64_t attention = c.hidden + c.q_rank + c.kv_rank + c.qk_dim() + c.num_heads * c.v_dim;
  int64_t length = c.hidden;
  for (const bool moe : c.layer_is_moe)
    length += attention + c.hidden +
              (moe ? c.moe.expert_inter * c.moe.router.top_k + c.moe.shared_inter : c.dense_inter);
  return length;
}

double fp32_bound(const ModelConfig& c, const Logits& want) {
  return unit_roundoff(DType::kF32) * static_cast<double>(path_length(c)) * largest(want);
}

LoadedModel load(const std::string& name, const LoadOptions& options) {
  Result<LoadedModel> model = load_model(fixture(name), options);
  if (!model) ADD_FAILURE() << model.error().message;
  return *std::move(model);
}

size_t best(const std::vector<float>& row) {
  return static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

// The best token of the prompt's last row and those that follow it, by the absorbed graph.
void expect_greedy(ModelRunner& runner, const std::vector<float>& last_row, const nlohmann::json& expected) {
  std::vector<int32_t> continuation = {static_cast<int32_t>(best(last_row))};
  while (continuation.size() < expected.size())
    continuation.push_back(
        static_cast<int32_t>(best(runner.generate(std::span(&continuation.back(), 1)).back())));
  EXPECT_EQ(continuation, expected.get<std::vector<int32_t>>());
}

// Every sequence through the prompt graph in fp32, logits against `logits.I`; then greedily on, by the
// absorbed graph.
void expect_parity(const std::string& name, int max_positions = 0,
                   const std::vector<size_t>& which = {0, 1, 2}) {
  LoadedModel model =
      load(name, {.max_positions = max_positions, .compute = DType::kF32, .shard = {}, .progress = {}});
  ModelRunner runner(&model, {.max_tokens = std::min(model.max_positions, 128), .cache_dtype = {}});
  const nlohmann::json expected = expected_json(name);
  for (const size_t i : which) {
    SCOPED_TRACE(name + ", sequence " + std::to_string(i));
    const auto tokens = expected["sequences"][i].get<std::vector<int32_t>>();
    const Logits want = expected_logits(name, "logits." + std::to_string(i));
    runner.reset();
    const Logits got = runner.prompt(tokens);
    const double bound = fp32_bound(model.config, want);
    ::testing::Test::RecordProperty(name + "." + std::to_string(i),
                                    std::to_string(difference(got, want) / bound));
    EXPECT_LE(difference(got, want), bound);
    expect_greedy(runner, got.back(), expected["greedy"][i]);
  }
}

TEST(Parity, the_embedded_model) {
  const auto folder = std::filesystem::path(LATENT_SOURCE_DIR) / "models/tiny";
  LoadedModel model = load_model(folder, {.compute = DType::kF32, .shard = {}, .progress = {}}).value();
  ModelRunner runner(&model, {.max_tokens = 128, .cache_dtype = {}});
  const auto expected = nlohmann::json::parse(std::ifstream(fixture("tiny_expected.json")));
  const Logits want = read_logits(fixture("tiny_expected.safetensors"), "logits_fp32");
  const Logits got = runner.prompt(expected["ids"].get<std::vector<int32_t>>());
  EXPECT_LE(difference(got, want), fp32_bound(model.config, want));
  expect_greedy(runner, got.back(), expected["greedy_fp32"]);
}

TEST(Parity, deepseek_v2) {
  for (const char* name : {"v2-greedy", "v2-groups", "v2-lite"}) expect_parity(name);
}

TEST(Parity, deepseek_v3) {
  for (const char* name : {"v3-yarn", "v3-bias-large", "v3-bias-negative", "v3-half-rope", "v3-mtp"})
    expect_parity(name);
}

TEST(Parity, moonlight_and_kimi_k2) {
  for (const char* name : {"v3-moonlight", "v3-kimi-k2"}) expect_parity(name);
}

TEST(Parity, glm_4_7_flash) { expect_parity("glm-4.7-flash"); }

TEST(Parity, minicpm3) { expect_parity("minicpm3"); }

// Sequence 0 and its continuation lie below the original limit of 56, which is the default context; the
// others above, where transformers takes the long factors for every position.
TEST(Parity, minicpm3_longrope) {
  expect_parity("minicpm3-long", 0, {0});
  expect_parity("minicpm3-long", 128, {1, 2});
}

// Weights as stored, arithmetic in fp32: fp16 and bf16 weights, fp8 blocks with both kinds of scales.
TEST(Parity, stored_half_precision_and_fp8_weights) {
  for (const char* name : {"v3-bf16", "v3-fp16", "v3-fp8", "v3-fp8-ue8m0"}) expect_parity(name);
}

// Queries are scaled by position from the original limit (16) on; fused expert tensors.
TEST(Parity, mistral4) { expect_parity("mistral4"); }

// In bf16 every intermediate is rounded once: to first order each adds u times the size of what it carries. A
// layer has about a dozen of them one after the other.
double bf16_bound(const ModelConfig& c, const Logits& want) {
  constexpr int kRoundingsPerLayer = 12;
  return unit_roundoff(DType::kBF16) * (kRoundingsPerLayer * c.num_layers + 2) * largest(want);
}

TEST(Parity, bf16_compute_stays_within_its_bound) {
  for (const std::string name : {"v3-bf16", "v3-fp8", "v3-fp8-ue8m0"}) {
    LoadedModel model = load(name, {.compute = {}, .shard = {}, .progress = {}});
    ASSERT_EQ(model.activation, DType::kBF16) << name;
    ModelRunner runner(&model, {.cache_dtype = {}});
    const nlohmann::json expected = expected_json(name);
    for (size_t i = 0; i < 3; ++i) {
      const Logits want = expected_logits(name, "logits." + std::to_string(i));
      runner.reset();
      const Logits got = runner.prompt(expected["sequences"][i].get<std::vector<int32_t>>());
      const double bound = bf16_bound(model.config, want);
      ::testing::Test::RecordProperty(name + "." + std::to_string(i),
                                      std::to_string(difference(got, want) / bound));
      EXPECT_LE(difference(got, want), bound) << name << ", sequence " << i;
      for (size_t t = 0; t < want.size(); ++t) {
        std::vector<float> sorted = want[t];
        std::sort(sorted.rbegin(), sorted.rend());
        if (sorted[0] - sorted[1] > 2 * bound) {
          EXPECT_EQ(best(got[t]), best(want[t])) << name << ", token " << t;
        }
      }
    }
  }
}

// C9: the prompt in chunks of any length, over cached context, and token by token in the absorbed form.
TEST(Parity, forms_and_chunkings_agree) {
  for (const std::string name : {"v2-lite", "v3-yarn", "glm-4.7-flash", "minicpm3", "mistral4"}) {
    LoadedModel model = load(name, {.compute = DType::kF32, .shard = {}, .progress = {}});
    ModelRunner runner(&model, {.cache_dtype = {}});
    const auto tokens = expected_json(name)["sequences"][2].get<std::vector<int32_t>>();
    const Logits want = expected_logits(name, "logits.2");
    const double bound = fp32_bound(model.config, want);
    for (const size_t chunk : {1, 7, 16, 33}) {
      Logits prompt, generated;
      const auto run = [&](Logits* all, auto&& step) {
        runner.reset();
        for (size_t begin = 0; begin < tokens.size(); begin += chunk)
          for (auto& row : step(std::span(tokens).subspan(begin, std::min(chunk, tokens.size() - begin))))
            all->push_back(std::move(row));
      };
      run(&prompt, [&](std::span<const int32_t> part) { return runner.prompt(part); });
      run(&generated, [&](std::span<const int32_t> part) { return runner.generate(part); });
      EXPECT_LE(difference(prompt, want), bound) << name << ", chunks of " << chunk;
      EXPECT_LE(difference(generated, want), bound) << name << ", absorbed, chunks of " << chunk;
    }
  }
}

// contract: C2 C3
// C3: what memory held before makes no difference.
TEST(Parity, results_are_the_same_bits_under_every_poison_pattern) {
  for (const std::string name : {"v2-groups", "v3-fp8", "minicpm3"}) {
    const auto tokens = expected_json(name)["sequences"][1].get<std::vector<int32_t>>();
    Logits want;
    for (const PoisonPattern pattern :
         {PoisonPattern::kNan, PoisonPattern::kInf, PoisonPattern::kLarge, PoisonPattern::kNone}) {
      LoadedModel model = load(name, {.compute = {}, .shard = {}, .progress = {}});
      ModelRunner runner(&model, {.poison = pattern, .cache_dtype = {}});
      Logits got = runner.prompt(std::span(tokens).first(20));
      for (auto& row : runner.generate(std::span(tokens).subspan(20))) got.push_back(std::move(row));
      if (want.empty()) want = got;
      EXPECT_EQ(got, want) << name << " under " << to_string(pattern);
    }
  }
}

}  // namespace
}  // namespace latent::model
