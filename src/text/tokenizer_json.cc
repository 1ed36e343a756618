// SPDX-License-Identifier: Apache-2.0
// tokenizer.json: vocabulary, merges and added tokens; pipeline_json.cc reads the rest.
#include <unordered_map>
#include <unordered_set>

#include "text/json_fields.h"
#include "text/pipeline_json.h"

namespace latent::text {
namespace {

using IdsByContent = std::unordered_map<std::string_view, int32_t>;

Result<int32_t> token_id(const Json& value, std::string_view content) {
  const std::optional<int64_t> id = integer(value);
  if (!id || *id < 0 || *id >= TokenizerParts::kMaxTokens)
    return make_error(ErrorCode::kCorrupt, "token '{}' has id {}, not one in 0 … {}", content,
                      id ? std::to_string(*id) : "of another type", TokenizerParts::kMaxTokens - 1);
  return static_cast<int32_t>(*id);
}

Result<AddedToken> read_added_token(const Json& json, const Json& id_value) {
  const auto content = string_field(json, "content");
  if (!content) return make_error(ErrorCode::kCorrupt, "an added token without content");
  const Result<int32_t> id = token_id(id_value, *content);
  if (!id) return id.error();
  const bool special = bool_or(json, "special", false);
  return AddedToken{.content = *content,
                    .id = *id,
                    .special = special,
                    .normalized = bool_or(json, "normalized", !special),
                    .lstrip = bool_or(json, "lstrip", false),
                    .rstrip = bool_or(json, "rstrip", false),
                    .single_word = bool_or(json, "single_word", false)};
}

Status check_model(const Json& model) {
  const std::string type = string_field(model, "type").value_or("BPE");  // old files leave it out
  if (type != "BPE")
    return make_error(ErrorCode::kUnsupported, "model '{}' is not supported, only BPE", type);
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!string_field(model, affix).value_or("").empty())
      return make_error(ErrorCode::kUnsupported, "model option '{}' is not supported", affix);
  const Json& dropout = field(model, "dropout");
  if (!dropout.is_null() && dropout != 0.0)
    return make_error(ErrorCode::kUnsupported, "model option 'dropout' is not supported");
  if (!field(model, "vocab").is_object() || !field(model, "merges").is_array())
    return make_error(ErrorCode::kCorrupt, "the model needs an object 'vocab' and a list 'merges'");
  return {};
}

Status read_vocabulary(const Json& vocab, TokenizerParts& parts) {
  parts.vocabulary.reserve(vocab.size());
  std::unordered_set<int32_t> seen;
  for (const auto& [content, value] : vocab.items()) {
    const Result<int32_t> id = token_id(value, content);
    if (!id) return id.error();
    if (!seen.insert(*id).second)
      return make_error(ErrorCode::kCorrupt, "token '{}' has id {}, as another token has", content, *id);
    parts.vocabulary.push_back({content, *id});
  }
  return {};
}

struct MergeTexts {
  std::string left, right;
};

// "left right", or ["left", "right"] as newer files have it.
Result<MergeTexts> read_merge(const Json& json) {
  if (json.is_array() && json.size() == 2 && json[0].is_string() && json[1].is_string())
    return MergeTexts{json[0].get<std::string>(), json[1].get<std::string>()};
  const std::string text = json.is_string() ? json.get<std::string>() : std::string();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
    return make_error(ErrorCode::kCorrupt, "merge '{}' is not a pair", text);
  return MergeTexts{text.substr(0, space), text.substr(space + 1)};
}

Status read_merges(const Json& merges, TokenizerParts& parts) {
  IdsByContent ids;
  for (const TokenizerParts::Entry& entry : parts.vocabulary) ids.emplace(entry.content, entry.id);
  parts.bpe.merges.reserve(merges.size());
  for (const Json& json : merges) {
    const Result<MergeTexts> texts = read_merge(json);
    if (!texts) return texts.error();
    const std::string joined = texts->left + texts->right;
    const auto left = ids.find(texts->left), right = ids.find(texts->right), result = ids.find(joined);
    if (left == ids.end() || right == ids.end() || result == ids.end())
      return make_error(ErrorCode::kCorrupt,
                        "merge '{}' + '{}': these or what they make are not in the vocabulary", texts->left,
                        texts->right);
    parts.bpe.merges.push_back({.left = left->second,
                                .right = right->second,
                                .result = result->second,
                                .rank = static_cast<uint32_t>(parts.bpe.merges.size())});
  }
  return {};
}

Status read_model(const Json& model, TokenizerParts& parts) {
  if (Status known = check_model(model); !known) return known;
  if (Status read = read_vocabulary(field(model, "vocab"), parts); !read) return read;
  if (Status read = read_merges(field(model, "merges"), parts); !read) return read;
  parts.bpe.whole_pieces_first = bool_or(model, "ignore_merges", false);
  parts.bpe.byte_fallback = bool_or(model, "byte_fallback", false);
  parts.bpe.fuse_unknown = bool_or(model, "fuse_unk", false);
  if (const auto unknown = string_field(model, "unk_token")) {
    const Json& vocab = field(model, "vocab");
    const Result<int32_t> id = token_id(field(vocab, unknown->c_str()), *unknown);
    if (!id) return id.error().with_context("unk_token");
    parts.bpe.unknown = *id;
  }
  return {};
}

Status read_added_tokens(const Json& list, TokenizerParts& parts) {
  for (const Json& json : list) {
    Result<AddedToken> token = read_added_token(json, field(json, "id"));
    if (!token) return token.error();
    parts.added.push_back(std::move(*token));
  }
  return {};
}

Result<TokenizerParts> read_parts(const Json& json) {
  TokenizerParts parts;
  if (Status read = read_model(field(json, "model"), parts); !read) return read.error();
  if (Status read = read_added_tokens(field(json, "added_tokens"), parts); !read) return read.error();
  if (Status read = read_normalizer(field(json, "normalizer"), parts.normalizer); !read) return read.error();
  Result<PreTokenizerShape> shape = read_pre_tokenizer(field(json, "pre_tokenizer"));
  if (!shape) return shape.error();
  parts.pre_tokenizer = std::move(shape->steps);
  parts.bpe.byte_level = shape->byte_level;
  Result<DecoderSpec> decoder = read_decoder(field(json, "decoder"));
  if (!decoder) return decoder.error();
  parts.decoder = std::move(*decoder);
  if (parts.decoder.byte_level != parts.bpe.byte_level)
    return make_error(ErrorCode::kUnsupported,
                      "ByteLevel must be both the pre_tokenizer and the decoder, or neither");
  if (parts.bpe.byte_level && parts.bpe.byte_fallback)
    return make_error(ErrorCode::kUnsupported, "byte_fallback together with ByteLevel is not supported");
  if (Status read = read_post_processor(field(json, "post_processor"), parts); !read) return read.error();
  return parts;
}

// A token of the config: a string, or an object with "content".
std::optional<std::string> config_token(const Json& json, const char* key) {
  const Json& value = field(json, key);
  return value.is_string() ? string_field(json, key) : string_field(value, "content");
}

}  // namespace

Result<TokenizerParts> parse_tokenizer_json(std::string_view text) {
  const Result<Json> json = parse_json_object(text);
  if (!json) return json.error();
  return read_parts(*json);
}

Result<TokenizerConfig> parse_tokenizer_config(std::string_view text) {
  const Result<Json> json = parse_json_object(text);
  if (!json) return json.error();
  TokenizerConfig config;
  const auto flag = [&](const char* key) -> std::optional<bool> {
    const Json& value = field(*json, key);
    return value.is_boolean() ? std::optional(value.get<bool>()) : std::nullopt;
  };
  config.add_bos = flag("add_bos_token");
  config.add_eos = flag("add_eos_token");
  config.bos_token = config_token(*json, "bos_token");
  config.eos_token = config_token(*json, "eos_token");
  config.tokenizer_class = string_field(*json, "tokenizer_class").value_or("");
  for (const auto& [key, value] : field(*json, "added_tokens_decoder").items()) {
    const Json id = Json::parse(key, nullptr, /*allow_exceptions=*/false);
    Result<AddedToken> token = read_added_token(value, id);
    if (!token) return token.error().with_context("added_tokens_decoder");
    config.added_tokens.push_back(std::move(*token));
  }
  return config;
}

Result<std::vector<int32_t>> parse_generation_eos(std::string_view text) {
  const Result<Json> json = parse_json_object(text);
  if (!json) return json.error();
  const Json& value = field(*json, "eos_token_id");
  std::vector<int32_t> ids;
  for (const Json& item : value) {  // a single number iterates over itself
    const Result<int32_t> id = token_id(item, "eos_token_id");
    if (!id) return id.error();
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace latent::text
