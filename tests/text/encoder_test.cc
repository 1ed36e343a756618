// SPDX-License-Identifier: Apache-2.0
// From text to ids: added tokens, and who may write them.
#include "text/encoder.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "text/mini_tokenizers.h"

namespace latent::text {
namespace {

using Ids = std::vector<int32_t>;
using Texts = std::vector<std::string>;

const MiniTokenizer kControl = with_control_tokens();

TEST(AddedTokens, are_found_leftmost_longest_and_split_words) {
  const auto tokenizer = make_tokenizer(kControl);
  EXPECT_EQ(tokens_of(*tokenizer, "hi<|end|> hi"), (Texts{"hi", "<|end|>", " hi"}));
  EXPECT_EQ(ids_of(*tokenizer, "<|end|><|end|><|end|>"), (Ids{1003, 1001}));
  EXPECT_EQ(ids_of(*tokenizer, "<think><|user|>"), (Ids{1002, 1000}));
  EXPECT_EQ(tokens_of(*tokenizer, "<|end|"), (Texts{"<|", "e", "n", "d", "|"}));
}

TEST(AddedTokens, strip_and_single_word_flags) {
  MiniTokenizer mini;
  mini.added_tokens = R"([{"id": 300, "content": "<L>", "lstrip": true, "special": true},
                          {"id": 301, "content": "<R>", "rstrip": true, "special": true},
                          {"id": 302, "content": "word", "single_word": true, "normalized": false}])";
  const auto tokenizer = make_tokenizer(mini);
  EXPECT_EQ(tokens_of(*tokenizer, "a \u3000<L> b"), (Texts{"a", "<L>", " ", "b"}));
  EXPECT_EQ(tokens_of(*tokenizer, "a<R>\n b"), (Texts{"a", "<R>", "b"}));
  EXPECT_EQ(ids_of(*tokenizer, "<R> <L>"), (Ids{301, 300}));
  EXPECT_EQ(ids_of(*tokenizer, "word"), (Ids{302}));
  EXPECT_EQ(ids_of(*tokenizer, "-word "), (Ids{'-', 302, ' '}));
  EXPECT_EQ(ids_of(*tokenizer, "words").size(), 5u);
  EXPECT_EQ(ids_of(*tokenizer, "éword").size(), 6u);
}

// The alphabet's own letters in an added token are just letters.
TEST(AddedTokens, bypass_the_byte_alphabet) {
  MiniTokenizer mini;
  mini.added_tokens =
      R"([{"id": 300, "content": "čĠĊ", "special": false}, {"id": 301, "content": "é", "special": true}])";
  const auto tokenizer = make_tokenizer(mini);
  EXPECT_EQ(ids_of(*tokenizer, "xčĠĊé"), (Ids{'x', 300, 301}));
  EXPECT_EQ(tokenizer->decode(Ids{'x', 300, 301}, false), "xčĠĊé");
  EXPECT_EQ(tokenizer->decode(Ids{'x', 300, 301}, true), "xčĠĊ");
}

TEST(AddedTokens, normalized_ones_are_found_in_normalized_text) {
  MiniTokenizer mini;
  mini.normalizer = R"({"type": "NFC"})";
  mini.added_tokens = R"([{"id": 300, "content": "caf\u00e9", "normalized": true},
                          {"id": 301, "content": "th\u00e9", "normalized": false}])";
  const auto tokenizer = make_tokenizer(mini);
  EXPECT_EQ(ids_of(*tokenizer, "cafe\u0301"), (Ids{300}));
  EXPECT_EQ(ids_of(*tokenizer, "the\u0301").size(), 4u);  // raw text does not hold it
  EXPECT_EQ(ids_of(*tokenizer, "th\u00e9"), (Ids{301}));
}

TEST(UserText, never_becomes_an_added_token) {
  for (const MiniTokenizer& mini : {kControl, sentencepiece_like()}) {
    const auto tokenizer = make_tokenizer(mini);
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
      if (!tokenizer->is_added(id)) continue;
      const std::string content(tokenizer->token_bytes(id));
      for (const std::string& text : {content, "hi " + content + content, content.substr(1) + content})
        for (const int32_t got : ids_of(*tokenizer, text, SpecialTokens::kAsText))
          EXPECT_FALSE(tokenizer->is_added(got) && got != 0) << text;  // 0 is <unk> of the sentencepiece one
    }
  }
}

// Not even through merges or a whole-piece look-up that a file holds for its contents.
TEST(UserText, reaches_no_control_token_by_merges) {
  MiniTokenizer mini{.merges = {"< e", "<e >"}, .more_tokens = {"<s>"}};
  mini.pre_tokenizer = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})";
  mini.added_tokens =
      R"([{"id": 256, "content": "<s>", "special": true}, {"id": 258, "content": "<e>", "special": true}])";
  for (const char* options : {"", R"(, "ignore_merges": true)"}) {
    mini.model_options = options;
    const auto tokenizer = make_tokenizer(mini);
    EXPECT_EQ(ids_of(*tokenizer, "<s>"), (Ids{256}));
    EXPECT_EQ(tokens_of(*tokenizer, "<s>", SpecialTokens::kAsText), (Texts{"<", "s", ">"}));
    EXPECT_EQ(tokens_of(*tokenizer, "<e>", SpecialTokens::kAsText), (Texts{"<e", ">"}));
  }
}

Ids ids_of_parts(const Tokenizer& tokenizer, const std::vector<TextPart>& parts) {
  auto ids = tokenizer.encode(parts);
  EXPECT_TRUE(ids.ok());
  return std::move(*ids);
}

TEST(Parts, control_tokens_come_from_trusted_parts_only) {
  const auto tokenizer = make_tokenizer(kControl);
  const auto parse = SpecialTokens::kParse, as_text = SpecialTokens::kAsText;
  const Ids ids =
      ids_of_parts(*tokenizer, {{"<|user|>", parse}, {"hi<|end|><|user|>", as_text}, {"<|end|>", parse}});
  EXPECT_EQ(ids.front(), 1000);
  EXPECT_EQ(ids.back(), 1001);
  for (size_t i = 1; i + 1 < ids.size(); ++i) EXPECT_FALSE(tokenizer->is_added(ids[i]));
  // Nor from the seam of a trusted part and a text.
  for (const auto& parts : {std::vector<TextPart>{{"<|us", parse}, {"er|>", as_text}},
                            std::vector<TextPart>{{"<|us", as_text}, {"er|>", parse}},
                            std::vector<TextPart>{{"<|end|>", as_text}, {"x", parse}, {"<think>", as_text}}})
    for (const int32_t id : ids_of_parts(*tokenizer, parts)) EXPECT_FALSE(tokenizer->is_added(id));
  // But from two trusted parts that touch.
  EXPECT_EQ(ids_of_parts(*tokenizer, {{"<|us", parse}, {"", as_text}, {"er|>", parse}}), (Ids{1000}));
}

TEST(Parts, words_form_across_seams) {
  const auto tokenizer = make_tokenizer(kControl);
  EXPECT_EQ(ids_of_parts(*tokenizer, {{"x h", SpecialTokens::kParse}, {"i", SpecialTokens::kAsText}}),
            ids_of(*tokenizer, "x hi"));
}

TEST(Parts, bytes_of_different_parts_do_not_make_a_character) {
  const auto tokenizer = make_tokenizer(kControl);
  const Ids ids =
      ids_of_parts(*tokenizer, {{"\xE4", SpecialTokens::kAsText}, {"\xBD\xA0", SpecialTokens::kParse}});
  EXPECT_EQ(tokenizer->decode(ids, false), "\uFFFD\uFFFD\uFFFD");
}

TEST(Parts, trust_holds_under_a_normalizer) {
  MiniTokenizer mini = sentencepiece_like();
  mini.added_tokens.pop_back();
  mini.added_tokens += R"(, {"id": 900, "content": "<t>", "normalized": true}])";
  const auto tokenizer = make_tokenizer(mini);
  const Ids ids =
      ids_of_parts(*tokenizer, {{"<t><s>", SpecialTokens::kParse}, {"a<s><t>", SpecialTokens::kAsText}});
  ASSERT_GE(ids.size(), 2u);
  EXPECT_EQ(ids[0], 900);
  EXPECT_EQ(ids[1], 1);
  EXPECT_EQ(std::count(ids.begin() + 2, ids.end(), 900), 0);
  EXPECT_EQ(std::count(ids.begin() + 2, ids.end(), 1), 0);
}

}  // namespace
}  // namespace latent::text
