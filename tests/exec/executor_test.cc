// SPDX-License-Identifier: Apache-2.0
#include "exec/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "exec/compile.h"
#include "graph/tiny_graph.h"
#include "testing/compare.h"
#include "testing/random.h"

namespace latent::exec {
namespace {

using graph::Graph;
using ops::AttentionForm;
using testing::Random;

constexpr int kPageTokens = 16, kNumPages = 9, kVocab = 32, kMaxTokens = 64;

// A model of one layer with its cache, and one request whose pages are scattered.
class TinyModel {
 public:
  explicit TinyModel(DType dtype, PoisonPattern poison = PoisonPattern::kNan)
      : dtype_(dtype), poison_(poison) {
    Random random(testing::test_seed());
    for (const graph::Value& v : testing::tiny_graph(dtype).values) {
      if (v.kind != graph::ValueKind::kWeight) continue;
      std::vector<int64_t> extents;
      for (const graph::Dim& d : v.dims) extents.push_back(d.extent);
      const float scale = v.name == "rope.cos_sin" ? 0.7f : extents.size() == 1 ? 1.0f : 0.4f;
      weights_.add(v.name,
                   {.values = random.tensor(v.dtype, Shape(extents), testing::Values::kNormal, scale)});
    }
    Result<KvCache> cache = KvCache::create({8, 4, kPageTokens, dtype}, 1, kNumPages, poison);
    cache_ = std::make_unique<KvCache>(*std::move(cache));
  }

  std::unique_ptr<Executor> executor(AttentionForm form, ExecOptions options = {},
                                     std::set<std::string> disabled = {}) {
    options.poison = poison_;
    Result<std::unique_ptr<Executor>> made =
        compile(testing::tiny_graph(dtype_), &weights_, cache_.get(),
                {.form = form, .disabled_passes = std::move(disabled), .limits = limits(), .exec = options});
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    return *std::move(made);
  }

  static StepLimits limits() {
    return {.max_tokens = kMaxTokens, .max_seqs = 2, .max_outputs = kMaxTokens, .max_pages = 4};
  }

  graph::WeightStore& weights() { return weights_; }
  KvCache& cache() { return *cache_; }

 private:
  DType dtype_;
  PoisonPattern poison_;
  graph::WeightStore weights_;
  std::unique_ptr<KvCache> cache_;
};

const std::vector<int32_t> kPages = {7, 2, 5, 3};

int32_t token(int position) { return (position * 7 + 3) % kVocab; }

// Logits of positions [begin, end), which this step adds to the request.
std::vector<float> step(Executor& executor, int begin, int end) {
  std::vector<int32_t> ids, positions, slots, rows;
  for (int p = begin; p < end; ++p) {
    ids.push_back(token(p));
    positions.push_back(p);
    slots.push_back(kPages[static_cast<size_t>(p / kPageTokens)] * kPageTokens + p % kPageTokens);
    rows.push_back(p - begin);
  }
  const std::vector<int32_t> starts = {0, end - begin}, lens = {end};
  const Result<TensorView> logits = executor.run({.token_ids = ids,
                                                  .positions = positions,
                                                  .slots = slots,
                                                  .q_starts = starts,
                                                  .kv_lens = lens,
                                                  .block_table = kPages,
                                                  .block_table_width = static_cast<int>(kPages.size()),
                                                  .output_rows = rows});
  EXPECT_TRUE(logits.ok()) << (logits.ok() ? "" : logits.error().message);
  return {logits->data<float>(), logits->data<float>() + logits->num_elements()};
}

// A prompt of `length` in chunks.
std::vector<float> prompt(Executor& executor, int length, int chunk) {
  std::vector<float> all;
  for (int begin = 0; begin < length; begin += chunk) {
    const std::vector<float> part = step(executor, begin, std::min(begin + chunk, length));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double error = 0, norm = 0;
  EXPECT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    error += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
    norm += double{want[i]} * want[i];
  }
  return std::sqrt(error / norm);
}

// About twenty roundings of the activations lie between ids and logits; each is at most eps of its operand,
// and the residual stream carries them on with gain near one.
double bound(DType dtype) { return 20 * (dtype == DType::kF32 ? 0x1p-24 : 0x1p-9); }

class ExecutorTest : public ::testing::TestWithParam<DType> {};

TEST_P(ExecutorTest, both_forms_of_attention_agree) {
  TinyModel model(GetParam());
  auto prefill = model.executor(AttentionForm::kMultiHead);
  auto decode = model.executor(AttentionForm::kAbsorbed);
  const std::vector<float> whole = prompt(*prefill, 45, 45);
  EXPECT_LT(relative_error(prompt(*decode, 45, 45), whole), bound(GetParam()));
  EXPECT_LT(relative_error(prompt(*decode, 45, 1), whole), bound(GetParam()));
}

TEST_P(ExecutorTest, any_chunking_of_a_prompt_agrees) {
  TinyModel model(GetParam());
  auto prefill = model.executor(AttentionForm::kMultiHead);
  const std::vector<float> whole = prompt(*prefill, 45, 45);
  for (const int chunk : {1, 7, 16, 44})
    EXPECT_LT(relative_error(prompt(*prefill, 45, chunk), whole), bound(GetParam()));
}

TEST_P(ExecutorTest, fast_kernels_agree_with_the_reference) {
  TinyModel model(GetParam());
  auto fast = model.executor(AttentionForm::kMultiHead);
  auto reference = model.executor(AttentionForm::kMultiHead, {.reference_kernels = true});
  EXPECT_LT(relative_error(prompt(*fast, 45, 45), prompt(*reference, 45, 45)), bound(GetParam()));
}

// contract: C3
TEST_P(ExecutorTest, no_poison_pattern_reaches_a_logit) {
  std::vector<std::vector<float>> results;
  for (const auto pattern :
       {PoisonPattern::kNone, PoisonPattern::kNan, PoisonPattern::kInf, PoisonPattern::kLarge}) {
    TinyModel model(GetParam(), pattern);
    auto prefill = model.executor(AttentionForm::kMultiHead);
    auto decode = model.executor(AttentionForm::kAbsorbed);
    results.push_back(prompt(*prefill, 20, 7));
    const std::vector<float> next = step(*decode, 20, 21);
    results.back().insert(results.back().end(), next.begin(), next.end());
  }
  for (const std::vector<float>& r : results) {
    EXPECT_EQ(r, results.front());
    EXPECT_TRUE(std::all_of(r.begin(), r.end(), [](float x) { return std::isfinite(x); }));
  }
}

TEST_P(ExecutorTest, fused_operators_give_the_bits_of_unfused_ones_where_the_arithmetic_is_the_same) {
  TinyModel model(GetParam());
  auto fused = model.executor(AttentionForm::kMultiHead);
  auto unfused = model.executor(AttentionForm::kMultiHead, {}, {"fuse_rope_cache_write"});
  EXPECT_EQ(prompt(*fused, 30, 30), prompt(*unfused, 30, 30));
}

// contract: C1 C4
TEST_P(ExecutorTest, padded_rows_change_nothing) {
  TinyModel model(GetParam());
  auto prefill = model.executor(AttentionForm::kMultiHead);
  auto decode = model.executor(AttentionForm::kAbsorbed);
  prompt(*prefill, 20, 20);
  const std::vector<float> alone = step(*decode, 20, 21);
  for (const int padding : {1, 3, 15}) {
    const auto rows = static_cast<size_t>(1 + padding);
    std::vector<int32_t> ids(rows, 0), positions(rows, 0), slots(rows, ops::kSkipSlot);
    ids[0] = token(20);
    positions[0] = 20;
    slots[0] = kPages[1] * kPageTokens + 4;
    const std::vector<int32_t> starts = {0, 1, 1}, lens = {21, 0};
    std::vector<int32_t> table = kPages;
    table.insert(table.end(), 4, ops::kNullPage);
    const std::vector<int32_t> outputs = {0};
    const Result<TensorView> logits = decode->run({.token_ids = ids,
                                                   .positions = positions,
                                                   .slots = slots,
                                                   .q_starts = starts,
                                                   .kv_lens = lens,
                                                   .block_table = table,
                                                   .block_table_width = 4,
                                                   .output_rows = outputs});
    ASSERT_TRUE(logits.ok());
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), logits->data<float>())) << padding << " padded rows";
  }
}

TEST_P(ExecutorTest, observers_see_every_operator_once) {
  TinyModel model(GetParam());
  auto prefill = model.executor(AttentionForm::kMultiHead);
  std::map<std::string, int> seen;
  prefill->set_observer([&](const graph::Node& node, const graph::Value& value, const TensorView& view) {
    ++seen[value.name];
    EXPECT_EQ(value.dtype, view.dtype());
    EXPECT_FALSE(graph::is_view(node.op));
    return true;
  });
  step(*prefill, 0, 5);
  for (const char* name : {"layers.0.attention", "layers.0.out", "logits"}) EXPECT_EQ(seen[name], 1) << name;
}

TEST_P(ExecutorTest, an_observer_can_end_a_step_and_the_next_one_is_whole) {
  TinyModel model(GetParam());
  auto prefill = model.executor(AttentionForm::kMultiHead);
  const auto whole = prompt(*prefill, 5, 5);
  prefill->set_observer([](const graph::Node&, const graph::Value& value, const TensorView&) {
    return value.name != "layers.0.attention";
  });
  const std::vector<int32_t> ids = {0}, slots = {kPages[0] * kPageTokens}, starts = {0, 1}, lens = {1};
  const Result<TensorView> ended = prefill->run({.token_ids = ids,
                                                 .positions = ids,
                                                 .slots = slots,
                                                 .q_starts = starts,
                                                 .kv_lens = lens,
                                                 .block_table = kPages,
                                                 .block_table_width = 4,
                                                 .output_rows = ids});
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, ErrorCode::kCancelled);
  prefill->set_observer({});
  EXPECT_EQ(prompt(*prefill, 5, 5), whole);
}

TEST_P(ExecutorTest, executors_share_what_is_folded) {
  TinyModel model(GetParam());
  auto first = model.executor(AttentionForm::kAbsorbed);
  const size_t entries = model.weights().entries().size();
  auto second = model.executor(AttentionForm::kAbsorbed);
  EXPECT_EQ(model.weights().entries().size(), entries);
  EXPECT_TRUE(model.weights().has("layers.0.w_uk_t"));
  EXPECT_FALSE(model.weights().has("layers.0.w_uv"));  // a view of kv_b
  EXPECT_EQ(prompt(*first, 9, 9), prompt(*second, 9, 9));
}

TEST_P(ExecutorTest, memory_is_reused_by_live_range) {
  TinyModel model(GetParam());
  auto prefill = model.executor(AttentionForm::kMultiHead);
  EXPECT_LT(prefill->arena_bytes(), prefill->arena_bytes_without_reuse());
}

// contract: C13
TEST_P(ExecutorTest, a_step_beyond_the_limits_is_an_error_with_both_numbers) {
  TinyModel model(GetParam());
  auto prefill = model.executor(AttentionForm::kMultiHead);
  const std::vector<int32_t> many(kMaxTokens + 1, 0), starts = {0, kMaxTokens + 1}, lens = {kMaxTokens + 1};
  const Result<TensorView> logits = prefill->run({.token_ids = many,
                                                  .positions = many,
                                                  .slots = many,
                                                  .q_starts = starts,
                                                  .kv_lens = lens,
                                                  .block_table = kPages,
                                                  .block_table_width = 4,
                                                  .output_rows = {}});
  ASSERT_FALSE(logits.ok());
  EXPECT_NE(logits.error().message.find("65 tokens"), std::string::npos);
  EXPECT_NE(logits.error().message.find("64"), std::string::npos);
}

// contract: C6
TEST_P(ExecutorTest, a_missing_weight_is_an_error_that_names_it) {
  TinyModel model(GetParam());
  graph::WeightStore empty;
  const auto made =
      Executor::create(testing::tiny_graph(GetParam()), &empty, &model.cache(), TinyModel::limits(), {});
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("rope.cos_sin"), std::string::npos) << made.error().message;
}

// contract: C14
TEST_P(ExecutorTest, a_forced_backend_that_is_not_there_is_an_error) {
  TinyModel model(GetParam());
  Graph graph = testing::tiny_graph(GetParam());
  const auto made = Executor::create(std::move(graph), &model.weights(), &model.cache(), TinyModel::limits(),
                                     {.attention_backend = "abacus"});
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("abacus"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Types, ExecutorTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

}  // namespace
}  // namespace latent::exec
