// SPDX-License-Identifier: Apache-2.0
// What holds for every command: help, environment, errors and exit codes.
#include <functional>

#include "cli/fixture.h"

namespace latent::cli {
namespace {

using MainCommand = TinyModelTest;

TEST_F(MainCommand, help_and_version_need_nothing) {
  const Outcome help = run_latent({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command :
       {"run", "score", "perplexity", "inspect", "compare", "bench", "completion", "Exit codes"})
    EXPECT_TRUE(contains(help.out, command)) << command;
  const Outcome version = run_latent({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_EQ(version.out.rfind("latent ", 0), 0u);
  for (const char* command : {"run", "score", "perplexity", "inspect", "compare", "bench", "completion"})
    EXPECT_EQ(run_latent({command, "--help"}).exit_code, 0) << command;
  EXPECT_TRUE(contains(run_latent({"run", "--help"}).out, "LATENT_MAX_TOKENS"));
}

TEST_F(MainCommand, every_flag_is_also_an_environment_variable) {
  const Arguments base{"run", text_model(), "--prompt", "x"};
  const std::vector<std::string> environment{"LATENT_MAX_TOKENS=7", "LATENT_TEMPERATURE=0", "LATENT_JSON=1",
                                             "LATENT_IGNORE_EOS=true", "LATENT_THREADS=1"};
  const Outcome run = run_latent(base, "", environment);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(parse(run.out)["token_ids"].size(), 7u);
  const Outcome flag_wins = run_latent(base + Arguments{"--max-tokens", "3"}, "", environment);
  EXPECT_EQ(parse(flag_wins.out)["token_ids"].size(), 3u);
  EXPECT_EQ(run_latent(base, "", {"LATENT_MAX_TOKENS=many"}).exit_code, 2);
  for (const char* other : {"LATENT_MAX_TOKENS=7", "LATENT_MAX_TOKENS=many", "LATENT_PROTOCOL=none"})
    EXPECT_EQ(run_latent({"inspect", model()}, "", {other}).exit_code, 0) << "another command's " << other;
  const Outcome wide = run_latent(base, "", {"LATENT_KV_CACHE=fp32", "LATENT_MAX_TOKENS=1"});
  EXPECT_EQ(wide.exit_code, 0) << "bench attention knows no fp32: " << wide.err;
  EXPECT_TRUE(contains(run_latent(base, "", {"LATENT_JSON=perhaps"}).err, "'perhaps' is neither 1 nor 0"));
  const Outcome unseen = run_latent({"run", text_model(), "-f", write("y", "y")}, "", {"LATENT_PROMPT=x"});
  EXPECT_EQ(unseen.exit_code, 2);
  EXPECT_TRUE(contains(unseen.err, "(LATENT_PROMPT in the environment)")) << unseen.err;
  const Outcome bad_level = run_latent(base, "", {"LATENT_LOG=loud"});
  EXPECT_EQ(bad_level.exit_code, 2);
  EXPECT_TRUE(contains(bad_level.err, "LATENT_LOG")) << bad_level.err;
  EXPECT_TRUE(contains(run_latent({"--version"}, "", {"LATENT_MAX_TOKEN=7"}).err, "LATENT_MAX_TOKEN "))
      << "a misspelling";
}

struct BadCase {
  Arguments arguments;
  int exit_code;
  std::vector<std::string> words;  // that the message must hold
};

// contract: C7 C15
TEST_F(MainCommand, whatever_is_wrong_is_said_and_has_its_exit_code) {
  const std::string ids = write("good.json", "[1, 2, 3]");
  const auto ids_file = [&](const std::string& text) {
    return write("bad" + std::to_string(std::hash<std::string>{}(text)), text);
  };
  const std::string long_prompt = ids_file(ids_text(some_ids(300)));
  const std::vector<BadCase> cases = {
      {{}, 2, {"subcommand"}},
      {{"frobnicate"}, 2, {"frobnicate"}},
      {{"run"}, 2, {"MODEL"}},
      {{"run", model(), "--no-such-flag"}, 2, {"--no-such-flag"}},
      {{"run", model(), "--token-ids", ids, "--prompt", "x"}, 2, {"excludes"}},
      {{"run", model(), "--token-ids", ids, "--max-tokens", "0"}, 2, {"max_tokens", "0"}},
      {{"run", model(), "--token-ids", ids, "--max-tokens", "1000"}, 2, {"1000", "256"}},
      {{"run", model(), "--token-ids", ids, "--max-tokens", "99999999999"}, 2, {"99999999999"}},
      {{"run", model(), "--token-ids", ids, "--max-tokens", "1.5"},
       2,
       {"--max-tokens '1.5'", "whole number"}},
      {{"run", model(), "--token-ids", ids, "--max-tokens="},
       2,
       {"--max-tokens needs a value", "latent run"}},
      {{"run", model(), "--token-ids", ids, "--temperature", "warm"},
       2,
       {"--temperature 'warm'", "not a number"}},
      {{"run", model(), "--token-ids", ids, "--seed", "-1"}, 2, {"--seed", "'-1'", "18446744073709551615"}},
      {{"run", model(), "--token-ids", ids, "--seed", "18446744073709551616"}, 2, {"'18446744073709551616'"}},
      {{"run", model(), "--token-ids", ids, "--temperature", "-1"}, 2, {"temperature", "-1"}},
      {{"run", model(), "--token-ids", ids, "--top-p", "1.5"}, 2, {"top_p", "1.5"}},
      {{"run", model(), "--token-ids", ids, "--logit-bias", "5"}, 2, {"ID=BIAS"}},
      {{"run", model(), "--token-ids", ids, "--logit-bias", "104=1"}, 2, {"104", "103"}},
      {{"run", model(), "--token-ids", ids, "--stop-id", "-1"}, 2, {"-1", "103"}},
      {{"run", model(), "--token-ids", ids, "--stop", "x"}, 2, {"tokenizer"}},
      {{"run", model(), "--token-ids", ids, "--threads", "100000"}, 2, {"100000"}},
      {{"run", model(), "--token-ids", ids, "--context", "100000"}, 2, {"100000", "256"}},
      {{"run", model(), "--token-ids", ids, "--attention-backend", "magic"}, 2, {"magic", "ref"}},
      {{"run", model(), "--token-ids", ids, "--poison", "arsenic"}, 2, {"arsenic"}},
      {{"run", model(), "--prompt", "x"}, 2, {"tokenizer"}},
      {{"run", model(), "--token-ids", long_prompt}, 2, {"300", "256"}},
      {{"run", model(), "--token-ids", ids_file("[1, 104]")}, 2, {"104", "103"}},
      {{"run", model(), "--token-ids", ids_file("[-1]")}, 2, {"-1"}},
      {{"run", model(), "--token-ids", ids_file("[]")}, 2, {"empty"}},
      {{"run", model(), "--token-ids", ids_file("[1, 5000000000]")}, 3, {"5000000000"}},
      {{"run", model(), "--token-ids", ids_file("[1, \"x\"]")}, 3, {"item 1"}},
      {{"run", model(), "--token-ids", ids_file("{\"a\": 1}")}, 3, {"list"}},
      {{"run", model(), "--token-ids", ids_file("[1, 2")}, 3, {"bad"}},
      {{"run", model(), "--token-ids", path("absent.json")}, 3, {"absent.json"}},
      {{"run", path("no-model"), "--prompt", "x"}, 3, {"no-model"}},
      {{"run", ids, "--prompt", "x"}, 3, {"good.json"}},
      {{"score", model()}, 2, {"--text"}},
      {{"score", model(), "--text", ids, "--token-ids", ids}, 2, {"--text"}},
      {{"score", model(), "--token-ids", long_prompt}, 2, {"300", "256"}},
      {{"score", model(), "--token-ids", ids, "--json", path("no/such/folder.json")}, 1, {"folder.json"}},
      {{"perplexity", model(), "--text", ids}, 2, {"tokenizer"}},
      {{"perplexity", text_model(), "--text", ids, "--window", "1"}, 2, {"--window 1"}},
      {{"perplexity", text_model(), "--text", write("empty.txt", "")}, 2, {"no token"}},
      {{"inspect"}, 2, {"--shape"}},
      {{"inspect", "--shape", "gpt"}, 2, {"gpt", "v2-lite"}},
      {{"inspect", "--shape", "v3", "--layers", "100"}, 2, {"100", "61"}},
      {{"bench", "model", model(), "--contexts", "0"}, 2, {"--contexts 0"}},
      {{"bench", "model", "--shape", "kimi-k2", "--dtype", "fp32"}, 1, {"GiB", "memory", "--layers"}},
      {{"bench", "model", model(), "--dtype", "fp8"}, 2, {"--dtype requires --shape"}},
      {{"run", model(), "--token-ids", ids, "--system", "x"}, 2, {"--system requires --chat"}},
      {{"run", model(), "--token-ids", ids, "--logprobs", "2"}, 2, {"--logprobs requires --json"}},
      {{"run", model(), "--token-ids", path("")}, 3, {"folder"}},
      {{"inspect", model(), "--format", "svg"}, 2, {"--format requires --graph"}},
      {{"inspect", model(), "--before-passes"}, 2, {"--before-passes requires --graph"}},
      {{"inspect", model(), "--graph", "decode", "--json"}, 2, {"--json excludes --graph"}},
      {{"bench", "attention", "--backend", "cpu", "--pool-gb", "1000"}, 1, {"--pool-gb", "free"}},
      {{"completion", "tcsh"}, 2, {"tcsh"}},
  };
  for (const BadCase& c : cases) {
    const Outcome outcome = run_latent(c.arguments);
    std::string line;
    for (const std::string& a : c.arguments) line += " " + a;
    EXPECT_EQ(outcome.exit_code, c.exit_code) << line << "\n" << outcome.err;
    EXPECT_EQ(outcome.out, "") << line;
    EXPECT_TRUE(contains(outcome.err, "latent: error: ")) << line << "\n" << outcome.err;
    for (const std::string& word : c.words)
      EXPECT_TRUE(contains(outcome.err, word)) << line << "\n" << outcome.err;
  }
}

TEST_F(MainCommand, a_damaged_model_is_refused_by_name) {
  const testing::TempFolder folder;
  const auto damaged = [&](const std::string& name,
                           const std::function<void(const std::filesystem::path&)>& damage) {
    const std::filesystem::path copy = folder.path() / name;
    std::filesystem::copy(model(), copy, std::filesystem::copy_options::recursive);
    damage(copy);
    const std::string ids = folder.write("ids.json", "[1, 2]").string();
    const Outcome outcome = run_latent({"run", copy.string(), "--token-ids", ids, "-n", "1"});
    EXPECT_EQ(outcome.exit_code, 3) << name << "\n" << outcome.err;
    return outcome.err;
  };
  EXPECT_TRUE(contains(
      damaged("truncated",
              [](const auto& copy) { std::filesystem::resize_file(copy / "model.safetensors", 300000); }),
      "model.safetensors"));
  const auto remove_weights = [](const std::filesystem::path& copy) {
    for (const char* name : {"model.safetensors", "expected.safetensors"})
      std::filesystem::remove(copy / name);
  };
  EXPECT_TRUE(contains(damaged("missing", remove_weights), "safetensors"));
  EXPECT_TRUE(
      contains(damaged("no-config", [](const auto& copy) { std::filesystem::remove(copy / "config.json"); }),
               "config"));
  EXPECT_TRUE(contains(
      damaged("bad-config", [&](const auto&) { folder.write("bad-config/config.json", "{"); }), "config"));
  EXPECT_TRUE(
      contains(damaged("bad-generation",
                       [&](const auto&) { folder.write("bad-generation/generation_config.json", "[]"); }),
               "generation_config"));
}

TEST_F(MainCommand, weights_that_the_config_does_not_name_are_reported) {
  const testing::TempFolder folder;
  const std::filesystem::path copy = folder.path() / "model";
  std::filesystem::copy(model(), copy, std::filesystem::copy_options::recursive);
  Json config = parse(read_file(copy / "config.json"));
  config["n_shared_experts"] = 0;
  folder.write("model/config.json", config.dump());
  const Outcome outcome =
      run_latent({"run", copy.string(), "--token-ids", folder.write("ids.json", "[1]").string(), "-n", "1"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "not used") && contains(outcome.err, "shared_experts")) << outcome.err;
}

TEST_F(MainCommand, a_result_that_cannot_be_written_is_an_error) {
  const std::string ids = write("three.json", "[1, 2, 3]");
  for (const std::string& arguments :
       {std::string("--version"), "score " + model() + " --token-ids " + ids, "inspect " + model(),
        "run " + model() + " --token-ids " + ids + " -n 2"})
    for (const char* sink : {"> /dev/full", ">&-"}) {
      const std::string command =
          std::string(LATENT_BINARY_DIR) + "/latent " + arguments + " " + sink + " 2> " + path("full.err");
      EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1) << command;
      EXPECT_TRUE(contains(read_file(path("full.err")), "stdout")) << command;
    }
}

TEST_F(MainCommand, what_is_said_on_stderr_may_get_lost) {
  const std::string ids = write("three.json", "[1, 2, 3]"), logits = path("l.safetensors");
  const auto size_of_result = [&](const std::string& sinks) {
    std::filesystem::remove(logits);
    const std::string latent = "LATENT_LOG=debug " + std::string(LATENT_BINARY_DIR) + "/latent ";
    EXPECT_EQ(WEXITSTATUS(std::system((latent + "run " + model() + " --token-ids " + ids + " -n 2 " + sinks +
                                       " > " + path("run.out"))
                                          .c_str())),
              0)
        << sinks;
    EXPECT_EQ(WEXITSTATUS(std::system(
                  (latent + "score " + model() + " --token-ids " + ids + " --logits " + logits + " " + sinks)
                      .c_str())),
              0)
        << sinks;
    return std::filesystem::file_size(logits);
  };
  const auto size = size_of_result("2> /dev/null");
  for (const char* sinks : {"2> /dev/full", "2>&-", "<&- 2>&-"})
    EXPECT_EQ(size_of_result(sinks), size) << sinks;
}

TEST_F(MainCommand, an_answer_ends_at_the_first_token_that_cannot_be_written) {
  const std::string command = std::string(LATENT_BINARY_DIR) + "/latent run " + model() + " --token-ids " +
                              write("three.json", "[1, 2, 3]") + " --ignore-eos -n 200 > /dev/full 2> " +
                              path("full.err");
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 1) << command;
  const std::string err = read_file(path("full.err"));
  EXPECT_TRUE(contains(err, "token 1 of the answer: stdout takes no more (No space left on device)")) << err;
  EXPECT_TRUE(contains(err, "answer 1 tokens")) << err;
}

}  // namespace
}  // namespace latent::cli
