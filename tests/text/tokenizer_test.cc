// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "text/mini_tokenizers.h"
#include "text/utf8.h"

namespace latent::text {
namespace {

using Ids = std::vector<int32_t>;
using Texts = std::vector<std::string>;

const MiniTokenizer kControl = with_control_tokens();

TEST(Tokenizer, merges_bytes_within_words) {
  const auto tokenizer = make_tokenizer({.merges = {"h i", "Ġ hi", "i Ġ"}});
  EXPECT_EQ(tokens_of(*tokenizer, "hi hi  hi"), (Texts{"hi", " hi", " ", " hi"}));
  EXPECT_EQ(tokens_of(*tokenizer, ""), Texts{});
  EXPECT_EQ(tokens_of(*tokenizer, "é"), (Texts{"\xC3", "\xA9"}));
}

TEST(Tokenizer, merges_may_be_pairs) {
  std::string json = MiniTokenizer{.merges = {"h i"}}.json();
  const std::string old_form = R"(["h i"])";
  json.replace(json.find(old_form), old_form.size(), R"([["h", "i"]])");
  const auto tokenizer = Tokenizer::create({.tokenizer_json = json});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(tokens_of(**tokenizer, "hi"), Texts{"hi"});
}

TEST(Tokenizer, bytes_that_are_not_utf8_are_replacement_characters) {
  const auto tokenizer = make_tokenizer(kControl);
  for (const std::string text : {"a\xFFz", "\xE4\xBD", "hi\xC0\xAF<|end|>", "\xED\xA0\x80"}) {
    EXPECT_EQ(ids_of(*tokenizer, text), ids_of(*tokenizer, repair_utf8(text)));
    EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, text), false), repair_utf8(text));
  }
}

TEST(Tokenizer, text_round_trips) {
  const auto byte_level = make_tokenizer(kControl);
  const auto sentencepiece = make_tokenizer(sentencepiece_like());
  EXPECT_TRUE(rc::check([&] {
    const auto text = repair_utf8(*rc::gen::container<std::string>(
        rc::gen::oneOf(rc::gen::arbitrary<char>(),
                       rc::gen::element<char>(' ', 'h', 'i', '<', '|', '>', '\xE4', '\xBD', '\xA0'))));
    for (const auto mode : {SpecialTokens::kParse, SpecialTokens::kAsText}) {
      RC_ASSERT(byte_level->decode(ids_of(*byte_level, text, mode), false) == text);
    }
    RC_ASSERT(sentencepiece->decode(ids_of(*sentencepiece, text, SpecialTokens::kAsText), false) == text);
  }));
}

TEST(Sentencepiece, words_and_fallback) {
  const auto tokenizer = make_tokenizer(sentencepiece_like());
  const auto raw = [&](std::string_view text) {
    Texts out = tokens_of(*tokenizer, text);
    return out;
  };
  EXPECT_EQ(raw("hello world"), (Texts{" hello", " world"}));
  EXPECT_EQ(raw(" hello"), (Texts{" ", " hello"}));
  EXPECT_EQ(raw("你好é"), (Texts{" ", "你", "好", "é"}));
  EXPECT_EQ(raw("ß"), (Texts{" ", "\xC3", "\x9F"}));
  EXPECT_EQ(raw("a<s>a"), (Texts{" ", "a", "<s>", " ", "a"}));  // each stretch gets its mark
  EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, "ß 你x"), false), "ß 你x");
}

TEST(Bos, the_template_adds_it_once) {
  const auto tokenizer = make_tokenizer(sentencepiece_like());
  EXPECT_EQ(tokenizer->encode_prompt("a")->front(), 1);
  EXPECT_EQ(*tokenizer->encode_prompt("<s>"), (Ids{1}));
  EXPECT_EQ(*tokenizer->encode_prompt(""), (Ids{1}));
  const Ids twice = *tokenizer->encode_prompt("<s>a");
  EXPECT_EQ(std::count(twice.begin(), twice.end(), 1), 1);
  const Ids alone = ids_of(*tokenizer, "a");
  EXPECT_EQ(std::count(alone.begin(), alone.end(), 1), 0);
}

TEST(Bos, add_bos_token_stands_above_the_template) {
  const auto off = make_tokenizer(sentencepiece_like(), R"({"add_bos_token": false, "bos_token": "<s>"})");
  EXPECT_FALSE(off->adds_bos());
  EXPECT_EQ(*off->encode_prompt("a"), ids_of(*off, "a"));
  const auto on =
      make_tokenizer(kControl, R"({"add_bos_token": true, "bos_token": {"content": "<|user|>"}})");
  EXPECT_TRUE(on->adds_bos());
  EXPECT_EQ(*on->encode_prompt("hi"), (Ids{1000, ids_of(*on, "hi")[0]}));
  EXPECT_EQ(*on->encode_prompt("<|user|>hi"), *on->encode_prompt("hi"));
}

TEST(Bos, llama_classes_add_it_by_default_and_others_do_not) {
  const auto llama =
      make_tokenizer(kControl, R"({"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<|user|>"})");
  EXPECT_TRUE(llama->adds_bos());
  const auto fast =
      make_tokenizer(kControl, R"({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|user|>"})");
  EXPECT_FALSE(fast->adds_bos());
  EXPECT_EQ(fast->bos_id(), 1000);
  EXPECT_EQ(*fast->encode_prompt("hi"), ids_of(*fast, "hi"));
}

TEST(Eos, add_eos_token_and_the_list_of_both_configs) {
  const std::string json = kControl.json();
  const auto tokenizer =
      Tokenizer::create({.tokenizer_json = json,
                         .tokenizer_config = R"({"add_eos_token": true, "eos_token": "<|end|>"})",
                         .generation_config = R"({"eos_token_id": [1000, 1001]})"});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto eos = (*tokenizer)->eos_ids();
  EXPECT_EQ(Ids(eos.begin(), eos.end()), (Ids{1000, 1001}));
  EXPECT_EQ((*tokenizer)->encode_prompt("hi")->back(), 1001);
  const auto one =
      Tokenizer::create({.tokenizer_json = json, .generation_config = R"({"eos_token_id": 1000})"});
  EXPECT_EQ((*one)->eos_ids().size(), 1u);
}

TEST(Config, tokens_that_do_not_exist_are_errors_that_name_them) {
  const std::string json = kControl.json();
  for (const std::string_view config :
       {R"({"bos_token": "<nope>"})", R"({"eos_token": "<nope>"})", R"({"add_bos_token": true})",
        R"({"add_eos_token": true})", R"([])", R"({"added_tokens_decoder": {"x": {"content": "y"}}})"}) {
    const auto tokenizer = Tokenizer::create({.tokenizer_json = json, .tokenizer_config = config});
    ASSERT_FALSE(tokenizer.ok()) << config;
    EXPECT_NE(tokenizer.error().message.find("tokenizer_config.json"), std::string::npos);
  }
  EXPECT_FALSE(
      Tokenizer::create({.tokenizer_json = json, .generation_config = R"({"eos_token_id": "x"})"}).ok());
}

TEST(Config, completes_the_added_tokens) {
  const auto tokenizer = make_tokenizer(
      kControl,
      R"({"added_tokens_decoder": {"1000": {"content": "<other>"}, "2000": {"content": "<new>", "special": true}}})");
  EXPECT_EQ(ids_of(*tokenizer, "<new><|user|>"), (Ids{2000, 1000}));
  EXPECT_TRUE(tokenizer->is_special(2000));
  EXPECT_EQ(tokenizer->vocab_size(), 2001);
}

TEST(Tokenizer, finds_tokens_by_content) {
  const auto tokenizer = make_tokenizer(kControl);
  EXPECT_EQ(tokenizer->find_token("<|end|>"), 1001);
  EXPECT_EQ(tokenizer->token_bytes(*tokenizer->find_token(" hi")), " hi");
  EXPECT_EQ(tokenizer->find_token("absent"), std::nullopt);
  EXPECT_TRUE(tokenizer->is_special(1001));
  EXPECT_FALSE(tokenizer->is_special(1002));
  EXPECT_TRUE(tokenizer->is_added(1002));
  EXPECT_FALSE(tokenizer->is_added(-5));
  EXPECT_EQ(tokenizer->token_bytes(600), "");  // a hole in the ids
}

TEST(Tokenizer, long_hostile_texts_take_no_quadratic_time) {
  const auto tokenizer =
      make_tokenizer({.merges = {"a a", "aa aa", "Ġ Ġ", "ĠĠ ĠĠ"}, .added_tokens = kControl.added_tokens});
  const size_t size = 1 << 18;
  for (const std::string& text :
       {std::string(size, 'a'), std::string(size, ' ') + "x", std::string(size, '<'), std::string(size, '\n'),
        std::string(size, '\xE4'), std::string(size, '\0')}) {
    const Ids ids = ids_of(*tokenizer, text);
    EXPECT_EQ(tokenizer->decode(ids, false), repair_utf8(text));
  }
}

TEST(Tokenizer, one_object_serves_many_threads) {
  const auto tokenizer = make_tokenizer(kControl);
  const std::string text = "hi<|end|> hi 你好 12345 <think>\n\n";
  const Ids expected = ids_of(*tokenizer, text);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 200; ++n) wrong += ids_of(*tokenizer, text) != expected;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

class ModelFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const char* name, std::string_view text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  std::filesystem::path folder_;
};

TEST_F(ModelFolder, loads_the_files_it_has) {
  write("tokenizer.json", kControl.json());
  write("tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<|user|>"})");
  write("generation_config.json", R"({"eos_token_id": 1001})");
  const auto tokenizer = Tokenizer::load(folder_);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_TRUE((*tokenizer)->adds_bos());
  EXPECT_EQ((*tokenizer)->eos_ids()[0], 1001);
}

TEST_F(ModelFolder, without_a_tokenizer_is_not_found) {
  const auto tokenizer = Tokenizer::load(folder_);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kNotFound);
}

TEST_F(ModelFolder, errors_name_folder_and_file) {
  write("tokenizer.json", "{");
  const auto tokenizer = Tokenizer::load(folder_);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_NE(tokenizer.error().message.find(folder_.string()), std::string::npos);
  EXPECT_NE(tokenizer.error().message.find("tokenizer.json"), std::string::npos);
}

TEST_F(ModelFolder, a_file_that_cannot_be_read_is_an_error) {
  std::filesystem::create_directories(folder_ / "tokenizer.json");  // a folder of that name
  EXPECT_FALSE(Tokenizer::load(folder_).ok());
}

}  // namespace
}  // namespace latent::text
