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

Logits expected_logits(const std::string& name, const std::string& tensor) {
  const auto file = io::SafetensorsFile::open(fixture(name) / "expected.safetensors").value();
  const io::FileTensor* t = file.find(tensor);
  Logits rows;
  const auto cols = static_cast<size_t>(t->dims[1]);
  for (size_t i = 0; i < static_cast<size_t>(t->dims[0]); ++i) {
    rows.emplace_back(cols);
    std::memcpy(rows.back().data(), t->bytes.data() + i * cols * sizeof(float), cols * sizeof(float));
  }
  return rows;
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
    std::vector<int32_t> continuation = {static_cast<int32_t>(best(got.back()))};
    while (continuation.size() < expected["greedy"][i].size())
      continuation.push_back(
          static_cast<int32_t>(best(runner.generate(std::span(&continuation.back(), 1)).back())));
    EXPECT_EQ(continuation, expected["greedy"][i].get<std::vector<int32_t>>());
  }
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

}  // namespace
}  // namespace latent::model
