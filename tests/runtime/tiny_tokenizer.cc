// SPDX-License-Identifier: Apache-2.0
#include "runtime/tiny_tokenizer.h"

#include "base/check.h"

namespace latent::runtime {
namespace {

constexpr int kNumCharacters = 95;  // printable ASCII

std::string json_string(char c) {
  if (c == '"' || c == '\\') return std::string("\"\\") + c + "\"";
  // The byte alphabet writes the blank as U+0120.
  return c == ' ' ? "\"\\u0120\"" : std::string("\"") + c + "\"";
}

}  // namespace

std::string tiny_tokenizer_json(int vocab) {
  std::string entries, added;
  for (int id = 0; id < vocab; ++id) {
    if (id < kNumCharacters) {
      entries += (id > 0 ? "," : "") + json_string(static_cast<char>(' ' + id)) + ":" + std::to_string(id);
    } else {
      added += (added.empty() ? "" : ",") + std::string(R"({"id":)") + std::to_string(id) +
               R"(,"content":"<)" + std::to_string(id) +
               R"(>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true})";
    }
  }
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)" + added +
         R"(],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
         R"("use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,)"
         R"("trim_offsets":true,"use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,)"
         R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,)"
         R"("ignore_merges":false,"vocab":{)" +
         entries + R"(},"merges":[]}})";
}

std::unique_ptr<text::Tokenizer> make_tiny_tokenizer(int vocab) {
  const std::string json = tiny_tokenizer_json(vocab);
  Result<std::unique_ptr<text::Tokenizer>> tokenizer = text::Tokenizer::create(
      {.tokenizer_json = json, .tiktoken_ranks = {}, .tokenizer_config = {}, .generation_config = {}});
  CHECK(tokenizer.ok(), "the tiny tokenizer: {}", tokenizer.error().message);
  return *std::move(tokenizer);
}

}  // namespace latent::runtime
