// SPDX-License-Identifier: Apache-2.0
// Kimi-K2's and Moonlight's files: ranks and a Han-aware pattern.
#include <gtest/gtest.h>

#include "text/mini_tokenizers.h"

namespace latent::text {
namespace {

using Texts = std::vector<std::string>;

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
  }
  return out;
}

// All bytes, then `words`, which are tokens though no merges lead there step by step.
std::string ranks_of(const std::vector<std::string>& words) {
  std::string out;
  int rank = 0;
  for (int byte = 0; byte < 256; ++byte)
    out += base64(std::string(1, static_cast<char>(byte))) + " " + std::to_string(rank++) + "\n";
  for (const std::string& word : words) out += base64(word) + " " + std::to_string(rank++) + "\n";
  return out;
}

constexpr std::string_view kConfig =
    R"({"bos_token": "[BOS]", "eos_token": "[EOS]", "tokenizer_class": "TikTokenTokenizer",
  "added_tokens_decoder": {"260": {"content": "[BOS]", "special": true}, "261": {"content": "[EOS]", "special": true},
                           "262": {"content": "<think>", "special": false}}})";

std::unique_ptr<Tokenizer> tiktoken(const std::vector<std::string>& words, std::string_view config = "{}") {
  const std::string ranks = ranks_of(words);
  auto tokenizer = Tokenizer::create({.tiktoken_ranks = ranks, .tokenizer_config = config});
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return std::move(*tokenizer);
}

TEST(Tiktoken, whole_pieces_come_first_then_the_lowest_rank_merges) {
  const auto tokenizer = tiktoken({"lo", "hello", "el"});
  EXPECT_EQ(tokens_of(*tokenizer, "hello"), (Texts{"hello"}));
  // h e l l o a: "lo", then "el"; no two neighbours make "hello" from there.
  EXPECT_EQ(tokens_of(*tokenizer, "helloa"), (Texts{"h", "el", "lo", "a"}));
}

TEST(Tiktoken, pieces_are_cut_at_han_at_case_and_after_three_digits) {
  // Every piece that the pattern can make out of the text is a token, so tokens show pieces.
  const Texts pieces = {"中文", "Hello", "World's", "，",     "世界", "123", "45",     " you",
                        "々〇", "、",    "かな",    "  \r\n", "  ",   "ǅa",  "\u0301b"};
  const auto tokenizer = tiktoken(pieces);
  EXPECT_EQ(tokens_of(*tokenizer, "中文HelloWorld's，世界12345"),
            (Texts{"中文", "Hello", "World's", "，", "世界", "123", "45"}));
  EXPECT_EQ(tokens_of(*tokenizer, "々〇、"), (Texts{"々〇", "、"}));
  EXPECT_EQ(tokens_of(*tokenizer, "中文かな"), (Texts{"中文", "かな"}));
  EXPECT_EQ(tokens_of(*tokenizer, "  \r\n   you"), (Texts{"  \r\n", "  ", " you"}));
}

TEST(Tiktoken, control_tokens_have_names_or_reserved_ones) {
  const auto tokenizer = tiktoken({"ab", "cd", "ef", "gh"}, kConfig);
  EXPECT_EQ(tokenizer->vocab_size(), 260 + 258);
  EXPECT_EQ(tokenizer->bos_id(), 260);
  EXPECT_EQ(tokenizer->eos_ids()[0], 261);
  EXPECT_EQ(ids_of(*tokenizer, "[BOS]ab<think><|reserved_token_263|>[EOS]"),
            (std::vector<int32_t>{260, 256, 262, 263, 261}));
  EXPECT_FALSE(tokenizer->is_special(262));
  EXPECT_TRUE(tokenizer->is_special(263));
  for (const int32_t id : ids_of(*tokenizer, "[BOS]ab<think><|reserved_token_263|>", SpecialTokens::kAsText))
    EXPECT_LT(id, 260);
}

TEST(Tiktoken, adds_no_bos_of_its_own) {
  const auto tokenizer = tiktoken({"ab", "cd", "ef", "gh"}, kConfig);
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_EQ(*tokenizer->encode_prompt("ab"), (std::vector<int32_t>{256}));
}

TEST(Tiktoken, tokens_are_bytes_even_where_they_look_like_the_byte_alphabet) {
  const auto tokenizer = tiktoken({"Ġ", "é"});
  EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, "Ġ é"), false), "Ġ é");
}

TEST(Tiktoken, corrupt_ranks_are_errors_that_name_the_line) {
  for (const std::string_view ranks :
       {"QQ== 0\nQg== x\n", "QQ== 0\nQg==\n", "QQ== 0\nQg= 1\n", "QQ== 0\n!!!! 1\n", "QQ== 0\nQg== -1\n",
        "QQ== 0\nQQ== 1\n", "QQ== 0\nQg== 0\n", "QQ== 0\nQg== 99999999999\n", "QQ== 0\n 1\n"}) {
    const auto tokenizer = Tokenizer::create({.tiktoken_ranks = ranks});
    ASSERT_FALSE(tokenizer.ok()) << ranks;
    EXPECT_NE(tokenizer.error().message.find("line 2"), std::string::npos) << tokenizer.error().message;
  }
  EXPECT_FALSE(Tokenizer::create({.tiktoken_ranks = "QQ== 0\nQg== 5\n"}).ok());  // a gap
  EXPECT_FALSE(Tokenizer::create({.tiktoken_ranks = "\n"}).ok());
  EXPECT_TRUE(Tokenizer::create({.tiktoken_ranks = "QQ== 0\r\nQg== 1"}).ok());
}

}  // namespace
}  // namespace latent::text
