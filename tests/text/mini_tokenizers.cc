// SPDX-License-Identifier: Apache-2.0
#include "text/mini_tokenizers.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace latent::text {

std::string MiniTokenizer::json() const {
  nlohmann::json vocab = nlohmann::json::object();
  const auto add = [&](const std::string& token) {
    if (!vocab.contains(token)) vocab[token] = vocab.size();
  };
  const bool byte_level = pre_tokenizer.find("ByteLevel") != std::string::npos;
  for (unsigned byte = 0; byte_level && byte < 256; ++byte) {
    std::string character;
    append_utf8(character, byte_to_character(static_cast<uint8_t>(byte)));
    add(character);
  }
  for (const std::string& token : more_tokens) add(token);
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ');
    add(merge.substr(0, space) + merge.substr(space + 1));
  }
  return R"({"version": "1.0", "added_tokens": )" + added_tokens + R"(, "normalizer": )" + normalizer +
         R"(, "pre_tokenizer": )" + pre_tokenizer + R"(, "post_processor": )" + post_processor +
         R"(, "decoder": )" + decoder + R"(, "model": {"type": "BPE", "vocab": )" + vocab.dump() +
         R"(, "merges": )" + nlohmann::json(merges).dump() + model_options + "}}";
}

MiniTokenizer sentencepiece_like() {
  MiniTokenizer mini;
  mini.more_tokens = {"<unk>", "<s>", "</s>"};
  for (unsigned byte = 0; byte < 256; ++byte) mini.more_tokens.push_back(fmt::format("<0x{:02X}>", byte));
  for (const char* token : {"▁", "a", "b", "c", "d", "e", "h", "l", "o", "r", "w", "é", "你", "好"})
    mini.more_tokens.push_back(token);
  mini.merges = {"l o", "▁ w", "h e", "he l", "hel lo", "▁ hello", "o r", "▁w or", "▁wor l", "▁worl d"};
  mini.model_options = R"(, "byte_fallback": true, "fuse_unk": true, "unk_token": "<unk>")";
  mini.added_tokens = R"([{"id": 0, "content": "<unk>", "special": true},
                          {"id": 1, "content": "<s>", "special": true},
                          {"id": 2, "content": "</s>", "special": true}])";
  mini.normalizer = R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})";
  mini.pre_tokenizer = "null";
  mini.decoder = R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";
  mini.post_processor = R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}})";
  return mini;
}

MiniTokenizer with_control_tokens() {
  return {.merges = {"h i", "Ġ hi", "< |"}, .added_tokens = R"([
      {"id": 1000, "content": "<|user|>", "special": true, "normalized": false},
      {"id": 1001, "content": "<|end|>", "special": true, "normalized": false},
      {"id": 1002, "content": "<think>", "special": false, "normalized": true},
      {"id": 1003, "content": "<|end|><|end|>", "special": true, "normalized": false}])"};
}

std::unique_ptr<Tokenizer> make_tokenizer(const MiniTokenizer& mini, std::string_view config) {
  const std::string json = mini.json();
  auto tokenizer = Tokenizer::create({.tokenizer_json = json, .tokenizer_config = config});
  if (!tokenizer) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    std::abort();
  }
  return std::move(*tokenizer);
}

void expect_refused(const MiniTokenizer& mini, std::string_view name) {
  const std::string json = mini.json();
  const auto tokenizer = Tokenizer::create({.tokenizer_json = json});
  const std::string message = tokenizer.ok() ? "" : tokenizer.error().message;
  EXPECT_NE(tokenizer.ok(), !name.empty()) << json;
  EXPECT_NE(message.find(name), std::string::npos) << message;
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text, SpecialTokens special_tokens) {
  auto ids = tokenizer.encode(text, special_tokens);
  if (!ids) {
    std::fprintf(stderr, "%s\n", ids.error().message.c_str());
    std::abort();
  }
  return std::move(*ids);
}

std::vector<std::string> tokens_of(const Tokenizer& tokenizer, std::string_view text,
                                   SpecialTokens special_tokens) {
  std::vector<std::string> tokens;
  for (const int32_t id : ids_of(tokenizer, text, special_tokens))
    tokens.emplace_back(tokenizer.token_bytes(id));
  return tokens;
}

}  // namespace latent::text
