// SPDX-License-Identifier: Apache-2.0
#include "text/stream_decoder.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "text/mini_tokenizers.h"
#include "text/utf8.h"

namespace latent::text {
namespace {

const std::vector<std::string> kHardTexts = {
    "plain",
    "你好，世界",
    "👩‍👩‍👧‍👦 family 🏳️‍🌈",
    "e\u0301 n\u0303 a\u0323\u0302",
    "नमस्ते 안녕 مرحبا",
    "\xE4\xBD",         // cut inside a character
    "\xF0\x9F\x91",     // likewise, three of four
    "\xA0\xA0",         // continuation bytes alone
    "a\xFF\xC0\xAF z",  // never valid
    "\xED\xA0\x80",     // a surrogate
    "\xF0\x80\x80\x80 \xF4\x90\x80\x80",
    "ok\xE4\xBD\xE4\xBD\xA0\xF0\x9F"
    "end",
};

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                     StreamDecoder::Options options) {
  StreamDecoder decoder(tokenizer, options);
  std::string text;
  for (const int32_t id : ids) {
    const std::string delta = decoder.push(id);
    EXPECT_TRUE(is_utf8(delta));
    EXPECT_LE(decoder.num_held_bytes(), 3u);
    text += delta;
  }
  return text + decoder.flush();
}

// One token a byte.
const Tokenizer& byte_tokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer({});
  return *tokenizer;
}

std::vector<int32_t> byte_ids(std::string_view bytes) {
  std::vector<int32_t> ids;
  for (const char c : bytes) ids.push_back(static_cast<uint8_t>(c));  // the mini tokenizer's first 256 ids
  return ids;
}

TEST(StreamDecoder, concatenated_deltas_are_the_repaired_bytes) {
  for (const std::string& text : kHardTexts) {
    EXPECT_EQ(streamed(byte_tokenizer(), byte_ids(text), {.at_start = true}), repair_utf8(text));
    EXPECT_EQ(byte_tokenizer().decode(byte_ids(text), true), repair_utf8(text));
  }
}

TEST(StreamDecoder, emits_a_character_with_its_last_byte_and_not_before) {
  StreamDecoder decoder(byte_tokenizer(), {});
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.push(0xBD), "");
  EXPECT_EQ(decoder.push(0xA0), "你");
  EXPECT_EQ(decoder.push('a'), "a");
}

TEST(StreamDecoder, invalid_bytes_never_hold_back_what_follows) {
  StreamDecoder decoder(byte_tokenizer(), {});
  EXPECT_EQ(decoder.push(0xFF), "\uFFFD");
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.push('a'), "\uFFFDa");
  EXPECT_EQ(decoder.push(0xA0), "\uFFFD");
  EXPECT_EQ(decoder.push('b'), "b");
  EXPECT_EQ(decoder.flush(), "");
}

TEST(StreamDecoder, flush_replaces_an_incomplete_tail_once) {
  StreamDecoder decoder(byte_tokenizer(), {});
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.flush(), "\uFFFD");
  EXPECT_EQ(decoder.flush(), "");
  EXPECT_EQ(decoder.push('a'), "a");
}

// Wherever a prompt ends, even inside a character, the deltas after it hold nothing of it.
TEST(StreamDecoder, what_follows_a_prompt_is_decoded_for_itself) {
  for (const std::string& text : kHardTexts)
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      const std::vector<int32_t> generated = byte_ids(std::string_view(text).substr(cut));
      EXPECT_EQ(streamed(byte_tokenizer(), generated, {}), repair_utf8(text.substr(cut)));
    }
}

TEST(StreamDecoder, every_cutting_of_bytes_into_tokens_gives_one_text) {
  // Tokens of one to three bytes, across character boundaries.
  MiniTokenizer mini;
  mini.more_tokens = {"ä½", "łå", "ł", "å¥½ï", "ðŁ", "ĳ©", "âĢį"};
  const auto tokenizer = make_tokenizer(mini);
  EXPECT_TRUE(rc::check([&] {
    const auto ids = *rc::gen::container<std::vector<int32_t>>(rc::gen::inRange(0, tokenizer->vocab_size()));
    std::string bytes;
    for (const int32_t id : ids) bytes += tokenizer->token_bytes(id);
    RC_ASSERT(streamed(*tokenizer, ids, {.at_start = true}) == repair_utf8(bytes));
    RC_ASSERT(tokenizer->decode(ids, true) == repair_utf8(bytes));
  }));
}

// contract: C15
TEST(StreamDecoder, any_id_is_safe) {
  for (const MiniTokenizer& mini : {MiniTokenizer(), sentencepiece_like()}) {
    const auto tokenizer = make_tokenizer(mini);
    std::vector<int32_t> ids = {INT32_MIN, -1, tokenizer->vocab_size(), INT32_MAX};
    for (const int32_t id : ids) EXPECT_EQ(streamed(*tokenizer, {id}, {}), "");
    for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
      EXPECT_EQ(streamed(*tokenizer, {id}, {.skip_special = false}), repair_utf8(tokenizer->token_bytes(id)));
      ids.push_back(id);
    }
    EXPECT_TRUE(rc::check([&] {
      const auto sequence = *rc::gen::container<std::vector<int32_t>>(rc::gen::elementOf(ids));
      RC_ASSERT(streamed(*tokenizer, sequence, {.skip_special = false, .at_start = true}) ==
                tokenizer->decode(sequence, false));
    }));
  }
}

TEST(StreamDecoder, special_tokens_are_skipped_without_breaking_a_character) {
  MiniTokenizer mini;
  mini.added_tokens = R"([{"id": 256, "content": "<|end|>", "special": true},
                          {"id": 257, "content": "<think>", "special": false}])";
  const auto tokenizer = make_tokenizer(mini);
  const std::vector<int32_t> ids = {0xE4, 256, 0xBD, 0xA0, 257};
  EXPECT_EQ(streamed(*tokenizer, ids, {.skip_special = true}), "你<think>");
  EXPECT_EQ(streamed(*tokenizer, ids, {.skip_special = false}), "\uFFFD<|end|>\uFFFD\uFFFD<think>");
}

TEST(StreamDecoder, sentencepiece_space_is_stripped_only_where_a_text_begins) {
  const auto tokenizer = make_tokenizer(sentencepiece_like());
  const std::vector<int32_t> ids = ids_of(*tokenizer, "hello world");
  EXPECT_EQ(streamed(*tokenizer, ids, {.at_start = true}), "hello world");
  EXPECT_EQ(streamed(*tokenizer, ids, {.at_start = false}), " hello world");
  EXPECT_EQ(streamed(*tokenizer, ids_of(*tokenizer, "  a"), {.at_start = true}), "  a");
  std::vector<int32_t> with_bos = {1};
  with_bos.insert(with_bos.end(), ids.begin(), ids.end());
  EXPECT_EQ(streamed(*tokenizer, with_bos, {.skip_special = true, .at_start = true}), "hello world");
  EXPECT_EQ(streamed(*tokenizer, with_bos, {.skip_special = false, .at_start = true}), "<s> hello world");
}

TEST(StreamDecoder, metaspace_takes_the_spaces_of_the_first_token) {
  MiniTokenizer mini = sentencepiece_like();
  mini.normalizer = "null";
  mini.pre_tokenizer = R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})";
  mini.decoder = R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"})";
  const auto tokenizer = make_tokenizer(mini);
  const std::vector<int32_t> ids = ids_of(*tokenizer, "hello world");
  EXPECT_EQ(streamed(*tokenizer, ids, {.at_start = true}), "hello world");
  EXPECT_EQ(streamed(*tokenizer, ids, {.at_start = false}), " hello world");
}

}  // namespace
}  // namespace latent::text
