// SPDX-License-Identifier: Apache-2.0
// The engine on the tiny checkpoints of tests/golden/models.
#include "runtime/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "runtime/tiny_tokenizer.h"

namespace latent::runtime {
namespace {

const std::filesystem::path kModels = std::filesystem::path(LATENT_SOURCE_DIR) / "tests/golden/models";
constexpr const char* kModel = "v3-yarn";
constexpr int kVocab = 104;

model::LoadedModel load(const std::string& name = kModel) {
  Result<model::LoadedModel> model =
      model::load_model(kModels / name, {.compute = {}, .shard = {}, .progress = {}});
  CHECK(model.ok(), "{}", model.error().message);
  return *std::move(model);
}

// One thread unless the test says otherwise: these models are too small to share out.
std::unique_ptr<Engine> make_engine(EngineOptions options, const std::string& name = kModel,
                                    const text::Tokenizer* tokenizer = nullptr) {
  if (options.num_threads == 0) options.num_threads = 1;
  Result<std::unique_ptr<Engine>> engine = Engine::create(load(name), tokenizer, options);
  CHECK(engine.ok(), "{}", engine.error().message);
  return *std::move(engine);
}

std::vector<int32_t> random_ids(int count, uint32_t seed = 1) {
  std::mt19937 rng(seed);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(rng() % kVocab);
  return ids;
}

Request greedy(std::vector<int32_t> prompt, int max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.ignore_eos = true;
  return request;
}

// Runs the request to its end.
RequestOutput finish(Engine& engine, const Request& request) {
  const Result<RequestId> id = engine.submit(request);
  CHECK(id.ok(), "{}", id.error().message);
  while (!engine.idle()) engine.step();
  const Result<RequestOutput> output = engine.poll(*id);
  CHECK(output.ok() && output->state == RequestState::kFinished, "the request has not ended");
  engine.check_integrity();
  return *output;
}

std::vector<float> score_all(Engine& engine, const std::vector<int32_t>& ids) {
  std::vector<float> rows;
  const Status status = engine.score(ids, [&](int first, const TensorView& logits) -> Status {
    EXPECT_EQ(static_cast<size_t>(first) * kVocab, rows.size());
    rows.insert(rows.end(), logits.data<float>(), logits.data<float>() + logits.num_elements());
    return {};
  });
  EXPECT_TRUE(status.ok());
  return rows;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// "sequences" or "greedy" of the folder's expected.json.
std::vector<std::vector<int32_t>> expected_lists(const std::string& folder, const std::string& key) {
  std::ifstream file(kModels / folder / "expected.json");
  return nlohmann::json::parse(file).at(key).get<std::vector<std::vector<int32_t>>>();
}

TEST(Engine, greedy_answers_are_those_of_transformers) {
  for (const char* name : {"v2-lite", "v3-yarn", "v3-kimi-k2", "glm-4.7-flash", "minicpm3"}) {
    SCOPED_TRACE(name);
    const std::unique_ptr<Engine> engine = make_engine({.prefill_chunk_tokens = 7}, name);
    const auto prompts = expected_lists(name, "sequences"), answers = expected_lists(name, "greedy");
    ASSERT_FALSE(prompts.empty());
    ASSERT_EQ(prompts.size(), answers.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      ASSERT_EQ(answers[i].size(), 32u);
      EXPECT_EQ(finish(*engine, greedy(prompts[i], 32)).token_ids, answers[i]) << "sequence " << i;
    }
  }
}

// contract: C5
TEST(Engine, chunking_changes_no_bit_when_deterministic) {
  const std::vector<int32_t> prompt = random_ids(150);
  std::vector<int32_t> tokens;
  std::vector<float> logits;
  for (const int chunk : {150, 64, 100, 16, 1}) {
    SCOPED_TRACE(chunk);
    const std::unique_ptr<Engine> engine =
        make_engine({.deterministic = true, .prefill_chunk_tokens = chunk, .max_output_rows = chunk});
    const RequestOutput output = finish(*engine, greedy(prompt, 20));
    const std::vector<float> rows = score_all(*engine, prompt);
    if (tokens.empty()) {
      tokens = output.token_ids;
      logits = rows;
    }
    EXPECT_EQ(output.token_ids, tokens);
    EXPECT_TRUE(same_bits(rows, logits));
  }
}

TEST(Engine, chunking_stays_within_rounding_otherwise) {
  const std::vector<int32_t> prompt = random_ids(150);
  std::vector<float> whole;
  for (const int chunk : {150, 64, 7}) {
    const std::unique_ptr<Engine> engine =
        make_engine({.prefill_chunk_tokens = chunk, .max_output_rows = chunk});
    const std::vector<float> rows = score_all(*engine, prompt);
    if (whole.empty()) whole = rows;
    double error = 0, norm = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      error += (rows[i] - whole[i]) * (rows[i] - whole[i]);
      norm += whole[i] * whole[i];
    }
    // Three layers of a few dozen fp32 roundings each, amplified by norms at most a hundredfold.
    EXPECT_LT(std::sqrt(error / norm), 100 * 100 * 6e-8) << chunk;
  }
}

// contract: C2 C3
TEST(Engine, no_poison_pattern_changes_a_bit) {
  const std::vector<int32_t> prompt = random_ids(70);
  for (const char* name : {"v3-yarn", "v3-bf16", "v3-fp8"}) {
    SCOPED_TRACE(name);
    std::vector<int32_t> tokens;
    std::vector<float> logits;
    for (const PoisonPattern pattern :
         {PoisonPattern::kNone, PoisonPattern::kNan, PoisonPattern::kInf, PoisonPattern::kLarge}) {
      SCOPED_TRACE(to_string(pattern));
      const std::unique_ptr<Engine> engine =
          make_engine({.poison = pattern, .prefill_chunk_tokens = 32, .max_output_rows = 8}, name);
      const int vocab = engine->limits().vocab;
      std::vector<int32_t> ids = prompt;
      for (int32_t& id : ids) id %= vocab;
      const std::vector<int32_t> answer = finish(*engine, greedy(ids, 12)).token_ids;
      std::vector<float> rows;
      ASSERT_TRUE(engine
                      ->score(ids,
                              [&](int, const TensorView& l) -> Status {
                                rows.insert(rows.end(), l.data<float>(), l.data<float>() + l.num_elements());
                                return {};
                              })
                      .ok());
      if (tokens.empty()) {
        tokens = answer;
        logits = rows;
      }
      EXPECT_EQ(answer, tokens);
      EXPECT_TRUE(same_bits(rows, logits));
    }
  }
}

// contract: C5
TEST(Engine, an_answer_does_not_depend_on_what_was_served_before) {
  for (const bool deterministic : {false, true}) {
    Request request = greedy(random_ids(30), 40);
    request.sampling.temperature = 1;
    request.sampling.seed = 5;
    request.sampling.num_logprobs = 3;
    const std::unique_ptr<Engine> fresh = make_engine({.deterministic = deterministic});
    const RequestOutput first = finish(*fresh, request);
    const std::unique_ptr<Engine> used = make_engine({.deterministic = deterministic});
    for (uint32_t seed = 2; seed < 6; ++seed)
      finish(*used, greedy(random_ids(static_cast<int>(seed) * 30, seed), 20));
    const RequestOutput again = finish(*used, request);
    EXPECT_EQ(again.token_ids, first.token_ids);
    ASSERT_EQ(again.logprobs.size(), first.logprobs.size());
    for (size_t i = 0; i < first.logprobs.size(); ++i)
      EXPECT_EQ(again.logprobs[i].chosen.logprob, first.logprobs[i].chosen.logprob);
  }
}

TEST(Engine, scoring_and_generating_agree) {
  const std::unique_ptr<Engine> engine = make_engine({.max_output_rows = 16});
  Request request = greedy(random_ids(20), 1);
  request.sampling.num_logprobs = 0;
  const RequestOutput output = finish(*engine, request);
  const std::vector<float> rows = score_all(*engine, request.prompt);
  ASSERT_EQ(rows.size(), 20u * kVocab);
  const float* last = rows.data() + 19 * kVocab;
  EXPECT_EQ(output.token_ids[0], std::max_element(last, last + kVocab) - last);
  double sum = 0;
  for (int i = 0; i < kVocab; ++i) sum += std::exp(last[i]);
  EXPECT_NEAR(output.logprobs[0].chosen.logprob, last[output.token_ids[0]] - std::log(sum), 1e-4);
}

TEST(Engine, deltas_add_up_to_the_answer) {
  const std::unique_ptr<text::Tokenizer> tokenizer = make_tiny_tokenizer(kVocab);
  const std::unique_ptr<Engine> engine = make_engine({}, kModel, tokenizer.get());
  Request request = greedy(random_ids(10), 60);
  request.sampling.temperature = 1;
  request.sampling.num_logprobs = 0;
  const RequestOutput whole = finish(*engine, request);
  const RequestId id = *engine->submit(request);
  RequestOutput sum;
  while (sum.state != RequestState::kFinished) {
    engine->step();
    const Result<RequestOutput> delta = engine->poll(id);
    ASSERT_TRUE(delta.ok());
    sum.text += delta->text;
    sum.token_ids.insert(sum.token_ids.end(), delta->token_ids.begin(), delta->token_ids.end());
    sum.logprobs.insert(sum.logprobs.end(), delta->logprobs.begin(), delta->logprobs.end());
    sum.state = delta->state;
  }
  EXPECT_EQ(sum.token_ids, whole.token_ids);
  EXPECT_EQ(sum.text, whole.text);
  EXPECT_EQ(sum.text, tokenizer->decode(whole.token_ids, true));
  EXPECT_EQ(sum.logprobs.size(), 60u);
  EXPECT_FALSE(engine->poll(id).ok()) << "a finished request is forgotten";
}

TEST(Engine, every_way_to_end_is_told_apart) {
  const std::unique_ptr<text::Tokenizer> tokenizer = make_tiny_tokenizer(kVocab);
  const std::unique_ptr<Engine> engine = make_engine({}, kModel, tokenizer.get());
  const Request base = greedy(random_ids(10, 3), 50);
  const RequestOutput full = finish(*engine, base);
  EXPECT_EQ(full.finish, FinishReason::kLength);
  ASSERT_EQ(full.token_ids.size(), 50u);

  Request by_id = base;
  by_id.stop_ids = {full.token_ids[20]};
  const RequestOutput stopped = finish(*engine, by_id);
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
  const auto first = std::find(full.token_ids.begin(), full.token_ids.end(), full.token_ids[20]);
  EXPECT_EQ(stopped.token_ids, std::vector<int32_t>(full.token_ids.begin(), first + 1));
  EXPECT_EQ(stopped.text, tokenizer->decode({full.token_ids.data(), stopped.token_ids.size() - 1}, true))
      << "the stop token is no text";

  Request by_text = base;
  const std::string stop = full.text.substr(full.text.size() / 2, 2);
  by_text.stop_strings = {stop};
  const RequestOutput cut = finish(*engine, by_text);
  EXPECT_EQ(cut.finish, FinishReason::kStop);
  EXPECT_EQ(cut.text, full.text.substr(0, full.text.find(stop)));
  EXPECT_EQ(cut.stats.generated_tokens, static_cast<int>(cut.token_ids.size()));

  // Without max_tokens it goes on to the context limit.
  Request open_end = base;
  open_end.max_tokens.reset();
  EXPECT_EQ(finish(*engine, open_end).token_ids.size(),
            static_cast<size_t>(engine->limits().context_tokens - 10));
}

TEST(Engine, the_models_own_end_token_ends_an_answer_unless_ignored) {
  const std::unique_ptr<Engine> engine = make_engine({});
  Request request = greedy(random_ids(10), 40);
  request.sampling.logit_bias = {{1, 100}};  // id 1 ends a sequence of this model
  request.ignore_eos = false;
  const RequestOutput ended = finish(*engine, request);
  EXPECT_EQ(ended.finish, FinishReason::kStop);
  EXPECT_EQ(ended.token_ids, std::vector<int32_t>{1});
  request.ignore_eos = true;
  EXPECT_EQ(finish(*engine, request).token_ids, std::vector<int32_t>(40, 1));
  request.stop_ids = {1};
  EXPECT_EQ(finish(*engine, request).finish, FinishReason::kStop)
      << "a stop id of the request's own still counts";
}

TEST(Engine, cancelling_frees_everything_in_any_state) {
  const std::unique_ptr<Engine> engine = make_engine({.prefill_chunk_tokens = 16});
  const std::vector<int32_t> alone = finish(*engine, greedy(random_ids(40), 10)).token_ids;
  // Cancelled after n steps: waiting, between prefill chunks, while decoding.
  for (int steps = 0; steps < 8; ++steps) {
    SCOPED_TRACE(steps);
    const RequestId victim = *engine->submit(greedy(random_ids(40, 9), 100));
    const RequestId waiting = *engine->submit(greedy(random_ids(20, 8), 100));
    const RequestId other = *engine->submit(greedy(random_ids(40), 10));
    for (int i = 0; i < steps; ++i) engine->step();
    engine->cancel(victim);
    engine->cancel(waiting);
    engine->cancel(victim);
    const Result<RequestOutput> ended = engine->poll(victim);
    ASSERT_TRUE(ended.ok());
    EXPECT_EQ(ended->finish, FinishReason::kCancelled);
    EXPECT_EQ(engine->poll(waiting)->finish, FinishReason::kCancelled);
    engine->cancel(victim);  // forgotten: nothing happens
    while (!engine->idle()) engine->step();
    const Result<RequestOutput> output = engine->poll(other);
    ASSERT_TRUE(output.ok());
    EXPECT_EQ(output->token_ids, alone) << "a neighbour's end changes nothing";
    engine->check_integrity();
  }
}

// contract: C6 C12
TEST(Engine, a_non_finite_row_ends_one_request_with_an_error_that_names_the_step) {
  model::LoadedModel model = load();
  const int32_t bad = 17;
  const TensorView table = model.weights.view("embed").values;
  ASSERT_EQ(table.dtype(), DType::kF32);
  table.row<float>(bad)[3] = NAN;
  Result<std::unique_ptr<Engine>> created =
      Engine::create(std::move(model), nullptr, {.num_threads = 1, .prefill_chunk_tokens = 8});
  ASSERT_TRUE(created.ok());
  Engine& engine = **created;
  std::vector<int32_t> good_prompt(20, 5), bad_prompt(20, 5);
  bad_prompt[11] = bad;
  const RequestOutput before = finish(engine, greedy(good_prompt, 5));
  const RequestOutput failed = finish(engine, greedy(bad_prompt, 5));
  EXPECT_EQ(failed.finish, FinishReason::kError);
  ASSERT_TRUE(failed.error.has_value());
  EXPECT_EQ(failed.error->code, ErrorCode::kNonFinite);
  EXPECT_NE(failed.error->message.find("position 20"), std::string::npos) << failed.error->message;
  EXPECT_TRUE(failed.token_ids.empty());
  const RequestOutput after = finish(engine, greedy(good_prompt, 5));
  EXPECT_EQ(after.finish, FinishReason::kLength);
  EXPECT_EQ(after.token_ids, before.token_ids) << "pages that held NaN are used again";
  const Status scored = engine.score(bad_prompt, [](int, const TensorView&) -> Status { return {}; });
  ASSERT_FALSE(scored.ok());
  EXPECT_EQ(scored.error().code, ErrorCode::kNonFinite);
}

// contract: C15
TEST(Engine, bad_requests_are_refused_and_the_engine_lives_on) {
  const std::unique_ptr<Engine> engine = make_engine({});
  const int context = engine->limits().context_tokens;
  for (const int length : {0, context, context + 1, 10 * context})
    EXPECT_FALSE(engine->submit(greedy(std::vector<int32_t>(static_cast<size_t>(length), 1), 1)).ok())
        << length;
  for (const int32_t id : {-1, kVocab, INT32_MAX, INT32_MIN})
    EXPECT_FALSE(engine->submit(greedy({5, id}, 1)).ok()) << id;
  Request stops = greedy({5}, 1);
  stops.stop_strings = {"x"};
  EXPECT_FALSE(engine->submit(stops).ok()) << "stop strings without a tokenizer";
  const auto nothing = [](int, const TensorView&) -> Status { return {}; };
  EXPECT_FALSE(engine->score({}, nothing).ok());
  EXPECT_FALSE(engine->score({kVocab}, nothing).ok());
  EXPECT_FALSE(engine->score(std::vector<int32_t>(static_cast<size_t>(context) + 1, 1), nothing).ok());
  EXPECT_EQ(finish(*engine, greedy(random_ids(context - 1), 1)).token_ids.size(), 1u) << "the longest prompt";
}

// contract: C14
TEST(Engine, options_that_cannot_be_are_refused_by_name) {
  const auto refusal = [](const EngineOptions& options) {
    const Result<std::unique_ptr<Engine>> engine = Engine::create(load(), nullptr, options);
    return engine.ok() ? std::string() : engine.error().message;
  };
  EXPECT_NE(refusal({.attention_backend = "nonsense"}).find("nonsense"), std::string::npos);
  EXPECT_NE(refusal({.prefill_chunk_tokens = 0}).find("prefill chunk is 0"), std::string::npos);
  EXPECT_NE(refusal({.num_threads = 5000}).find("5000 threads"), std::string::npos);
  EXPECT_NE(refusal({.disabled_passes = {"no_such_pass"}}).find("no_such_pass"), std::string::npos);
}

// contract: C13
TEST(Engine, limits_come_from_one_place) {
  const std::unique_ptr<Engine> engine = make_engine({.prefill_chunk_tokens = 1000000});
  const EngineLimits& limits = engine->limits();
  EXPECT_EQ(limits.context_tokens, engine->model().max_positions);
  EXPECT_EQ(limits.prefill_chunk_tokens, limits.context_tokens);
  EXPECT_EQ(limits.num_pages, 1 + limits.max_pages);
  EXPECT_GE(limits.max_pages * limits.page_tokens, limits.context_tokens);
  EXPECT_EQ(limits.cache_bytes, limits.cache_token_bytes * limits.page_tokens * limits.num_pages);
  EXPECT_GT(limits.prefill_arena_bytes, 0);
  const Result<EngineLimits> planned =
      plan_limits(engine->model().config, engine->model().activation, engine->model().max_positions,
                  {.prefill_chunk_tokens = 1000000});
  ASSERT_TRUE(planned.ok());
  EXPECT_EQ(planned->cache_bytes, limits.cache_bytes) << "what inspect prints is what is reserved";
}

// contract: C14
TEST(Engine, switches_are_independent) {
  const std::vector<int32_t> prompt = expected_lists(kModel, "sequences")[0];
  const std::vector<int32_t> answer = expected_lists(kModel, "greedy")[0];
  for (const bool deterministic : {false, true})
    for (const bool reference : {false, true})
      for (const char* pass : {"", "absorb_weights", "fuse_rope_cache_write", "fuse_silu_mul"})
        for (const int chunk : {5, 512}) {
          EngineOptions options{.num_threads = chunk == 5 && !reference ? 2 : 1,
                                .deterministic = deterministic,
                                .reference_kernels = reference,
                                .prefill_chunk_tokens = chunk};
          if (*pass != '\0') options.disabled_passes = {pass};
          const std::unique_ptr<Engine> engine = make_engine(options);
          EXPECT_EQ(finish(*engine, greedy(prompt, 32)).token_ids, answer)
              << deterministic << reference << pass << chunk;
        }
}

}  // namespace
}  // namespace latent::runtime
