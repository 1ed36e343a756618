// SPDX-License-Identifier: Apache-2.0
// Reading tokenizer.json: what is refused, and that the refusal names it.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "text/mini_tokenizers.h"

namespace latent::text {
namespace {

std::string message_of(const MiniTokenizer& mini) {
  const std::string json = mini.json();
  const auto tokenizer = Tokenizer::create({.tokenizer_json = json});
  return tokenizer.ok() ? "accepted" : tokenizer.error().message;
}

void expect_refused(const MiniTokenizer& mini, std::string_view name) {
  const std::string message = message_of(mini);
  EXPECT_NE(message.find(name), std::string::npos) << message;
}

TEST(TokenizerJson, refuses_by_name_what_is_not_supported) {
  expect_refused({.normalizer = R"({"type": "Lowercase"})"}, "Lowercase");
  expect_refused({.normalizer = R"({"type": "Sequence", "normalizers": [{"type": "Precompiled"}]})"},
                 "Precompiled");
  expect_refused({.normalizer = R"({"no": "type"})"}, "no type");
  expect_refused({.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"},
      {"type": "Digits"}]})"},
                 "Digits");
  expect_refused({.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"},
      {"type": "ByteLevel"}]})"},
                 "UnicodeScripts");
  expect_refused({.decoder = "null"}, "decoder 'null'");
  expect_refused({.decoder = R"({"type": "CTC"})"}, "CTC");
  expect_refused({.decoder = R"({"type": "Fuse"})"}, "ByteLevel");
  expect_refused({.pre_tokenizer = R"({"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Isolated"})"},
                 "ByteLevel");
  expect_refused({.post_processor = R"({"type": "BertProcessing"})"}, "BertProcessing");
  expect_refused({.model_options = R"(, "dropout": 0.1)"}, "dropout");
  expect_refused({.model_options = R"(, "end_of_word_suffix": "</w>")"}, "end_of_word_suffix");
  expect_refused({.model_options = R"(, "continuing_subword_prefix": "##")"}, "continuing_subword_prefix");
  expect_refused({.model_options = R"(, "byte_fallback": true)"}, "byte_fallback");
  expect_refused({.model_options = R"(, "unk_token": "<nope>")"}, "unk_token");
}

MiniTokenizer with_split(std::string_view split) {
  return {.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [)" + std::string(split) +
                           R"(, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})"};
}

TEST(TokenizerJson, refuses_splits_it_cannot_do) {
  expect_refused(with_split(R"({"type": "Split", "pattern": {"Regex": "\\bx"}, "behavior": "Isolated"})"),
                 "\\b");
  expect_refused(with_split(R"({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"})"),
                 "compile");
  expect_refused(with_split(R"({"type": "Split", "pattern": "x", "behavior": "Isolated"})"), "pattern");
  expect_refused(with_split(R"({"type": "Split", "pattern": {"Regex": "x"}, "behavior": "Odd"})"), "Odd");
  expect_refused(with_split(R"({"type": "Split", "pattern": {"Regex": "x"}})"), "behavior");
  expect_refused(with_split(R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "odd"})"), "odd");
  expect_refused(with_split(R"({"type": "Metaspace"})"), "replacement");
}

TEST(TokenizerJson, refuses_decoders_it_cannot_do) {
  MiniTokenizer mini = sentencepiece_like();
  const auto with_decoders = [&](const std::string& list) {
    mini.decoder = R"({"type": "Sequence", "decoders": [)" + list + "]}";
    return mini;
  };
  expect_refused(with_decoders(R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})"), "Strip");
  expect_refused(
      with_decoders(R"({"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 0, "stop": 1})"),
      "Strip");
  expect_refused(with_decoders(R"({"type": "Fuse"}, {"type": "ByteFallback"})"), "ByteFallback");
  expect_refused(with_decoders(R"({"type": "Replace", "pattern": {"Regex": "x"}, "content": ""})"),
                 "Replace");
}

TEST(TokenizerJson, refuses_templates_it_cannot_do) {
  const auto with_template = [](const std::string& single) {
    return MiniTokenizer{.post_processor = R"({"type": "TemplateProcessing", "single": [)" + single +
                                           R"(], "special_tokens": {"<s>": {"id": "<s>", "ids": [0]},
                                               "<bad>": {"ids": [-1]}}})"};
  };
  expect_refused(with_template(""), "sequence");
  expect_refused(with_template(R"({"Sequence": {"id": "B"}})"), "sequence");
  expect_refused(with_template(R"({"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}})"), "sequence");
  expect_refused(with_template(R"({"SpecialToken": {"id": "<t>"}}, {"Sequence": {"id": "A"}})"), "<t>");
  expect_refused(with_template(R"({"SpecialToken": {"id": "<bad>"}}, {"Sequence": {"id": "A"}})"), "<bad>");
  EXPECT_EQ(message_of(with_template(R"({"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}})")),
            "accepted");
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

TEST(TokenizerJson, deep_nesting_is_an_error) {
  std::string normalizer = "null";
  for (int i = 0; i < 200; ++i) normalizer = R"({"type": "Sequence", "normalizers": [)" + normalizer + "]}";
  expect_refused({.normalizer = normalizer}, "nest");
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

// Normal forms come from a library; this only shows that each name means its form.
TEST(TokenizerJson, normal_forms_do_what_their_names_say) {
  const std::string text = "\u00e9e\u0301\ufb01";  // é composed, é decomposed, the ligature fi
  const std::vector<std::pair<std::string, std::string>> forms = {{"NFC", "\u00e9\u00e9\ufb01"},
                                                                  {"NFD", "e\u0301e\u0301\ufb01"},
                                                                  {"NFKC", "\u00e9\u00e9fi"},
                                                                  {"NFKD", "e\u0301e\u0301fi"}};
  for (const auto& [name, expected] : forms) {
    const auto tokenizer = make_tokenizer({.normalizer = R"({"type": ")" + name + R"("})"});
    EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, text), false), expected) << name;
  }
}

TEST(TokenizerJson, replace_normalizer_takes_strings_and_patterns) {
  const auto by_string =
      make_tokenizer({.normalizer = R"({"type": "Replace", "pattern": {"String": "."}, "content": "!"})"});
  EXPECT_EQ(by_string->decode(ids_of(*by_string, "a.b."), false), "a!b!");
  const auto by_regex =
      make_tokenizer({.normalizer = R"({"type": "Replace", "pattern": {"Regex": " +"}, "content": "_"})"});
  EXPECT_EQ(by_regex->decode(ids_of(*by_regex, "a   b c"), false), "a_b_c");
}

// J4: digits in groups of up to three, from the pattern in the file.
TEST(TokenizerJson, digit_groups_follow_the_pattern) {
  MiniTokenizer mini =
      with_split(R"({"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated"})");
  mini.merges = {"5 0", "50 1", "1 2", "12 3", "4 5", "45 6", "3 4"};
  const auto grouped = make_tokenizer(mini);
  using Texts = std::vector<std::string>;
  EXPECT_EQ(tokens_of(*grouped, "501"), (Texts{"501"}));
  EXPECT_EQ(tokens_of(*grouped, "1234567"), (Texts{"123", "456", "7"}));
  MiniTokenizer single = with_split(R"({"type": "Digits", "individual_digits": true})");
  single.merges = mini.merges;
  EXPECT_EQ(tokens_of(*make_tokenizer(single), "501"), (Texts{"5", "0", "1"}));
  MiniTokenizer runs = with_split(R"({"type": "Digits", "individual_digits": false})");
  runs.merges = {"a 5", "5 0", "50 1", "1 b"};
  EXPECT_EQ(tokens_of(*make_tokenizer(runs), "a501b"), (Texts{"a", "501", "b"}));
}

}  // namespace
}  // namespace latent::text
