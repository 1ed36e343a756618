// SPDX-License-Identifier: Apache-2.0
// The vocabulary, merges and added tokens of tokenizer.json.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "text/mini_tokenizers.h"

namespace latent::text {
namespace {

TEST(TokenizerJson, refuses_model_options_by_name) {
  expect_refused({.model_options = R"(, "dropout": 0.1)"}, "dropout");
  expect_refused({.model_options = R"(, "end_of_word_suffix": "</w>")"}, "end_of_word_suffix");
  expect_refused({.model_options = R"(, "continuing_subword_prefix": "##")"}, "continuing_subword_prefix");
  expect_refused({.model_options = R"(, "byte_fallback": true)"}, "byte_fallback");
  expect_refused({.model_options = R"(, "unk_token": "<nope>")"}, "unk_token");
}

std::string message_of_json(std::string_view json) {
  const auto tokenizer = Tokenizer::create({.tokenizer_json = json});
  return tokenizer.ok() ? "accepted" : tokenizer.error().message;
}

std::string model_json(const std::string& vocab, const std::string& merges) {
  return R"({"model": {"type": "BPE", "vocab": )" + vocab + R"(, "merges": )" + merges +
         R"(}, "pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"}})";
}

TEST(TokenizerJson, corrupt_files_are_errors) {
  EXPECT_EQ(message_of_json(model_json(R"({"a": 0, "b": 1, "ab": 2})", R"(["a b"])")), "accepted");
  for (const std::string& json :
       {std::string("nonsense"), std::string("[]"), std::string("{}"),
        std::string(R"({"model": {"type": "Unigram"}})"), model_json("[]", "[]"),
        model_json(R"({"a": 0})", "{}"), model_json(R"({"a": -1})", "[]"),
        model_json(R"({"a": 99999999})", "[]"), model_json(R"({"a": 18446744073709551615})", "[]"),
        model_json(R"({"a": 1.5})", "[]"), model_json(R"({"a": 0, "b": 0})", "[]"),
        model_json(R"({"a": 0, "b": 1})", R"(["a b"])"), model_json(R"({"a": 0, "ab": 1})", R"(["a b"])"),
        model_json(R"({"a": 0})", R"(["a"])"), model_json(R"({"a": 0})", R"([5])"),
        model_json(R"({"a": 0})", R"([["a"]])"), model_json(R"({"a": 0})", R"(["a b c"])")})
    EXPECT_NE(message_of_json(json), "accepted") << json;
  EXPECT_NE(message_of_json(R"({"model": {"type": "Unigram"}})").find("Unigram"), std::string::npos);
}

// contract: C15
TEST(TokenizerJson, damaged_files_never_crash) {
  const std::string whole = sentencepiece_like().json();
  EXPECT_TRUE(rc::check([&] {
    std::string json = whole;
    const auto at = static_cast<size_t>(*rc::gen::inRange<int>(0, static_cast<int>(json.size())));
    const int kind = *rc::gen::inRange(0, 3);
    if (kind == 0) json.resize(at);
    if (kind == 1) json[at] = *rc::gen::arbitrary<char>();
    if (kind == 2) json.erase(at, static_cast<size_t>(*rc::gen::inRange(1, 200)));
    const auto tokenizer = Tokenizer::create({.tokenizer_json = json});
    if (tokenizer.ok()) RC_ASSERT((*tokenizer)->encode("hello 你 <s>", SpecialTokens::kParse).ok());
  }));
}

}  // namespace
}  // namespace latent::text
