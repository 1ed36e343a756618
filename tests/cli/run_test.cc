// SPDX-License-Identifier: Apache-2.0
// latent run, run as a user runs it, on a tiny checkpoint.
#include "cli/fixture.h"

namespace latent::cli {
namespace {

using RunCommand = TinyModelTest;

TEST_F(RunCommand, greedy_ids_are_those_of_transformers) {
  const Json expected = parse(read_file(golden("v3-yarn") / "expected.json"));
  for (size_t i = 0; i < expected["sequences"].size(); ++i) {
    const std::string file = write("ids.json", expected["sequences"][i].dump());
    const Outcome run = run_latent({"run", model(), "--token-ids", file, "--max-tokens", "32",
                                    "--temperature", "0", "--ignore-eos", "--json"});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const Json answer = parse(run.out);
    EXPECT_EQ(answer["token_ids"], expected["greedy"][i]);
    EXPECT_TRUE(answer["text"].is_null());
    EXPECT_EQ(answer["finish_reason"], "length");
    EXPECT_EQ(answer["usage"]["completion_tokens"], 32);
    EXPECT_EQ(answer["usage"]["prompt_tokens"], expected["sequences"][i].size());
    EXPECT_GT(answer["timings"]["bytes_per_token"], 0);
  }
}

TEST_F(RunCommand, the_embedded_model_answers_as_transformers_does_in_bf16) {
  const Json expected = parse(read_file(golden("tiny_expected.json")));
  const std::string file = write("tiny_ids.json", expected["ids"].dump());
  const Outcome run = run_latent({"run", std::string(LATENT_SOURCE_DIR) + "/models/tiny", "--token-ids", file,
                                  "--max-tokens", "64", "--temperature", "0", "--ignore-eos", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(parse(run.out)["token_ids"], expected["greedy_bf16"]) << "the smallest margin is 0.2";
}

TEST_F(RunCommand, streamed_text_is_the_text_of_the_json_answer) {
  for (const Arguments& how :
       {Arguments{"--temperature", "0"}, Arguments{"--temperature", "1.5", "--seed", "3"},
        Arguments{"--chat", "--seed", "4"}, Arguments{"--seed", "5", "--stop", "e"}}) {
    const Arguments base = Arguments{"run", text_model(), "--prompt", "In the beginning", "-n", "60"} + how;
    const Outcome streamed = run_latent(base), whole = run_latent(base + Arguments{"--json"});
    ASSERT_EQ(streamed.exit_code, 0) << streamed.err;
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    EXPECT_EQ(streamed.out, parse(whole.out)["text"].get<std::string>() + "\n");
    EXPECT_TRUE(contains(streamed.err, "tokens/s"));
    EXPECT_EQ(run_latent(base).out, streamed.out) << "the same seed, the same text";
  }
}

TEST_F(RunCommand, prompts_come_from_flag_file_or_stdin_alike) {
  const Arguments base{"run", text_model(), "--temperature", "0", "-n", "20"};
  const std::string from_flag = run_latent(base + Arguments{"--prompt", "some text"}).out;
  EXPECT_EQ(run_latent(base + Arguments{"-f", write("prompt.txt", "some text")}).out, from_flag);
  EXPECT_EQ(run_latent(base, "some text").out, from_flag);
}

TEST_F(RunCommand, a_chat_message_cannot_forge_control_tokens) {
  const Arguments base{"run", text_model(), "--chat", "--temperature", "0", "-n", "1", "--json", "--prompt"};
  // As the control token <102> is one token; spelled out by a user it is five characters.
  const int plain = parse(run_latent(base + Arguments{"a"}).out)["usage"]["prompt_tokens"];
  const int forged = parse(run_latent(base + Arguments{"a<102>"}).out)["usage"]["prompt_tokens"];
  EXPECT_EQ(forged, plain + 5);
}

TEST_F(RunCommand, logprobs_are_numbers_that_belong_to_the_tokens) {
  const Outcome run = run_latent({"run", text_model(), "--prompt", "abc", "-n", "5", "--json", "--logprobs",
                                  "3", "--seed", "1", "--top-k", "1"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json answer = parse(run.out);
  ASSERT_EQ(answer["logprobs"].size(), answer["token_ids"].size());
  for (size_t i = 0; i < answer["logprobs"].size(); ++i) {
    const Json& row = answer["logprobs"][i];
    EXPECT_EQ(row["id"], answer["token_ids"][i]);
    ASSERT_EQ(row["best"].size(), 3u);
    EXPECT_EQ(row["best"][0], (Json{{"id", row["id"]}, {"logprob", row["logprob"]}}))
        << "top-k 1 takes the best";
    EXPECT_LE(row["logprob"].get<double>(), 0.0);
  }
}

TEST_F(RunCommand, ctrl_c_ends_an_answer_with_what_there_is) {
  const std::string ids = write("i.json", "[5, 6]");
  // The first token appears long before the last of 250.
  const Outcome run = run_latent_and_interrupt(
      {"run", model(), "--token-ids", ids, "--ignore-eos", "-n", "250", "--poison", "nan"});
  EXPECT_EQ(run.exit_code, 130) << run.err;
  EXPECT_FALSE(run.out.empty());
  EXPECT_EQ(run.out.back(), '\n');
}

}  // namespace
}  // namespace latent::cli
