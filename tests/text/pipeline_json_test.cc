// SPDX-License-Identifier: Apache-2.0
// The components of tokenizer.json around the model: what each does, and that refusals name it.
#include "text/pipeline_json.h"

#include <gtest/gtest.h>

#include "text/mini_tokenizers.h"

namespace latent::text {
namespace {

TEST(PipelineJson, refuses_by_name_what_is_not_supported) {
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
}

MiniTokenizer with_split(std::string_view split) {
  return {.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [)" + std::string(split) +
                           R"(, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})"};
}

TEST(PipelineJson, refuses_splits_it_cannot_do) {
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

TEST(PipelineJson, refuses_decoders_it_cannot_do) {
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

TEST(PipelineJson, refuses_templates_it_cannot_do) {
  const auto with_template = [](const std::string& single) {
    return MiniTokenizer{.post_processor = R"({"type": "TemplateProcessing", "single": [)" + single +
                                           R"(], "special_tokens": {"<s>": {"id": "<s>", "ids": [0]},
                                               "<bad>": {"ids": [-1]}, "<far>": {"ids": [256]}}})"};
  };
  expect_refused(with_template(""), "sequence");
  expect_refused(with_template(R"({"Sequence": {"id": "B"}})"), "sequence");
  expect_refused(with_template(R"({"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}})"), "sequence");
  expect_refused(with_template(R"({"SpecialToken": {"id": "<t>"}}, {"Sequence": {"id": "A"}})"), "<t>");
  expect_refused(with_template(R"({"SpecialToken": {"id": "<bad>"}}, {"Sequence": {"id": "A"}})"), "<bad>");
  expect_refused(with_template(R"({"SpecialToken": {"id": "<far>"}}, {"Sequence": {"id": "A"}})"),
                 "token 256");
  expect_refused(with_template(R"({"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<far>"}})"),
                 "token 256");
  expect_refused(with_template(R"({"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}})"), "");
}

TEST(PipelineJson, deep_nesting_is_an_error) {
  std::string normalizer = "null";
  for (int i = 0; i < 200; ++i) normalizer = R"({"type": "Sequence", "normalizers": [)" + normalizer + "]}";
  expect_refused({.normalizer = normalizer}, "nest");
}

// J4: digits in groups of up to three, from the pattern in the file.
TEST(PipelineJson, digit_groups_follow_the_pattern) {
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
