// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.h"

#include <algorithm>
#include <fstream>
#include <unordered_set>

#include "text/encoder.h"
#include "text/stream_decoder.h"
#include "text/token_table.h"
#include "text/tokenizer_parts.h"
#include "text/utf8.h"

namespace latent::text {
namespace {

struct TokenInfo {
  uint32_t begin = 0;  // in Impl::bytes
  uint32_t size = 0;
  bool special = false;
  bool added = false;
};

// Added tokens of the config that the tokenizer's own file does not list.
void complete_added_tokens(const TokenizerConfig& config, TokenizerParts& parts) {
  std::unordered_set<std::string_view> contents;
  std::unordered_set<int32_t> ids;
  for (const AddedToken& token : parts.added) {
    contents.insert(token.content);
    ids.insert(token.id);
  }
  std::vector<AddedToken> missing;
  for (const AddedToken& token : config.added_tokens)
    if (!contents.contains(token.content) && !ids.contains(token.id)) missing.push_back(token);
  parts.added.insert(parts.added.end(), missing.begin(), missing.end());
}

bool starts_with(const std::vector<int32_t>& ids, const std::vector<int32_t>& start) {
  return ids.size() >= start.size() && std::equal(start.begin(), start.end(), ids.begin());
}

bool ends_with(const std::vector<int32_t>& ids, const std::vector<int32_t>& end) {
  return ids.size() >= end.size() && std::equal(end.rbegin(), end.rend(), ids.rbegin());
}

// The content of a file; of one that does not exist, an empty text.
Result<std::string> read_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::string();
  const uintmax_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) return make_error(ErrorCode::kIo, "cannot read {}", path.string());
  std::string text(size, '\0');
  file.read(text.data(), static_cast<std::streamsize>(size));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(Encoder e) : encoder(std::move(e)) {}

  void add_tokens(const TokenizerParts& parts);
  Result<int32_t> named_token(const std::optional<std::string>& content, std::string_view key) const;
  Status set_ends(const TokenizerConfig& config);
  Status check_ends() const;  // what goes around a prompt are tokens
  Status set_eos(const TokenizerConfig& config, std::string_view generation_config);
  const TokenInfo* find(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < tokens.size() ? &tokens[static_cast<size_t>(id)] : nullptr;
  }

  Encoder encoder;
  std::vector<TokenInfo> tokens;  // by id
  std::string bytes;              // of all tokens, one after the other
  TokenTable ids_by_content;
  StartRule start_rule;
  std::vector<int32_t> prefix, suffix;  // around a raw prompt
  std::vector<int32_t> eos;
  std::optional<int32_t> bos;
};

void Tokenizer::Impl::add_tokens(const TokenizerParts& parts) {
  int32_t highest = -1;
  for (const auto& entry : parts.vocabulary) highest = std::max(highest, entry.id);
  for (const AddedToken& token : parts.added) highest = std::max(highest, token.id);
  tokens.resize(static_cast<size_t>(highest) + 1);
  ids_by_content = TokenTable(parts.vocabulary.size() + 2 * parts.added.size());
  const auto set = [&](int32_t id, std::string_view content) -> TokenInfo& {
    TokenInfo& token = tokens[static_cast<size_t>(id)];
    token.begin = static_cast<uint32_t>(bytes.size());
    token.size = static_cast<uint32_t>(content.size());
    bytes.append(content);
    ids_by_content.insert(content, id);
    return token;
  };
  for (const AddedToken& added : parts.added) {
    // Through the decoder as any token, but for the byte alphabet, in which added tokens are not written.
    TokenInfo& token =
        set(added.id, parts.decoder.byte_level ? added.content : parts.decoder.bytes_of(added.content));
    ids_by_content.insert(added.content, added.id);
    token.added = true;
    token.special = token.special || added.special;
  }
  for (const auto& entry : parts.vocabulary)
    if (!tokens[static_cast<size_t>(entry.id)].added) set(entry.id, parts.decoder.bytes_of(entry.content));
  start_rule = {parts.decoder.strip_leading_spaces, parts.decoder.first_token_drops_spaces};
  prefix = parts.prefix;
  suffix = parts.suffix;
}

Result<int32_t> Tokenizer::Impl::named_token(const std::optional<std::string>& content,
                                             std::string_view key) const {
  const int32_t id = content ? ids_by_content.find(*content) : TokenTable::kNone;
  if (id != TokenTable::kNone) return id;
  return make_error(ErrorCode::kCorrupt,
                    "tokenizer_config.json: {} is {}, which is no token of this tokenizer", key,
                    content ? "'" + *content + "'" : "missing");
}

// add_bos_token and add_eos_token, where given, stand above the template of tokenizer.json. Llama's class,
// which DeepSeek's and MiniCPM3's folders name, adds BOS unless told otherwise.
Status Tokenizer::Impl::set_ends(const TokenizerConfig& config) {
  if (config.bos_token) {
    const Result<int32_t> id = named_token(config.bos_token, "bos_token");
    if (!id) return id.error();
    bos = *id;
  }
  const bool llama = config.tokenizer_class.starts_with("LlamaTokenizer") && bos;
  if (config.add_bos || llama) {
    prefix.clear();
    const bool add = config.add_bos.value_or(true);
    if (add && !bos)
      return make_error(ErrorCode::kCorrupt,
                        "tokenizer_config.json: add_bos_token is true, but there is no bos_token");
    if (add) prefix = {*bos};
  }
  if (config.add_eos) {
    suffix.clear();
    if (!*config.add_eos) return check_ends();
    const Result<int32_t> id = named_token(config.eos_token, "eos_token");
    if (!id) return id.error();
    suffix = {*id};
  }
  return check_ends();
}

Status Tokenizer::Impl::check_ends() const {
  for (const std::vector<int32_t>* side : {&prefix, &suffix})
    for (const int32_t id : *side)
      if (id >= static_cast<int64_t>(tokens.size()))
        return make_error(
            ErrorCode::kCorrupt,
            "tokenizer.json: the post_processor adds token {}, but the highest of this tokenizer is {}", id,
            tokens.size() - 1);
  return {};
}

Status Tokenizer::Impl::set_eos(const TokenizerConfig& config, std::string_view generation_config) {
  if (!generation_config.empty()) {
    Result<std::vector<int32_t>> ids = parse_generation_eos(generation_config);
    if (!ids) return ids.error().with_context("generation_config.json");
    eos = std::move(*ids);
  }
  if (!config.eos_token) return {};
  const Result<int32_t> id = named_token(config.eos_token, "eos_token");
  if (!id) return id.error();
  if (std::find(eos.begin(), eos.end(), *id) == eos.end()) eos.push_back(*id);
  return {};
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(const Files& files) {
  TokenizerConfig config;
  if (!files.tokenizer_config.empty()) {
    Result<TokenizerConfig> read = parse_tokenizer_config(files.tokenizer_config);
    if (!read) return read.error().with_context("tokenizer_config.json");
    config = std::move(*read);
  }
  const bool json = !files.tokenizer_json.empty();
  Result<TokenizerParts> parts =
      json ? parse_tokenizer_json(files.tokenizer_json) : parse_tiktoken(files.tiktoken_ranks, config);
  if (!parts) return parts.error().with_context(json ? "tokenizer.json" : "tiktoken.model");
  complete_added_tokens(config, *parts);
  Result<Encoder> encoder = Encoder::create(*parts);
  if (!encoder) return encoder.error();
  auto impl = std::make_unique<Impl>(std::move(*encoder));
  impl->add_tokens(*parts);
  if (Status set = impl->set_ends(config); !set) return set.error();
  if (Status set = impl->set_eos(config, files.generation_config); !set) return set.error();
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::filesystem::path& model_folder) {
  std::string texts[4];
  const char* const names[4] = {"tokenizer.json", "tiktoken.model", "tokenizer_config.json",
                                "generation_config.json"};
  for (size_t i = 0; i < 4; ++i) {
    Result<std::string> text = read_file(model_folder / names[i]);
    if (!text) return text.error();
    texts[i] = std::move(*text);
  }
  if (texts[0].empty() && texts[1].empty())
    return make_error(ErrorCode::kNotFound, "neither tokenizer.json nor tiktoken.model in {}",
                      model_folder.string());
  Result<std::unique_ptr<Tokenizer>> tokenizer = create({texts[0], texts[1], texts[2], texts[3]});
  if (!tokenizer) return tokenizer.error().with_context(model_folder.string());
  return tokenizer;
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, SpecialTokens special_tokens) const {
  const TextPart part{text, special_tokens};
  return encode(std::span(&part, 1));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::span<const TextPart> parts) const {
  return impl_->encoder.encode(parts);
}

Result<std::vector<int32_t>> Tokenizer::encode_prompt(std::string_view text) const {
  Result<std::vector<int32_t>> ids = encode(text, SpecialTokens::kParse);
  if (!ids) return ids;
  if (!starts_with(*ids, impl_->prefix))
    ids->insert(ids->begin(), impl_->prefix.begin(), impl_->prefix.end());
  if (!ends_with(*ids, impl_->suffix)) ids->insert(ids->end(), impl_->suffix.begin(), impl_->suffix.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  StreamDecoder decoder(*this, {.skip_special = skip_special, .at_start = true});
  std::string text;
  for (const int32_t id : ids) text += decoder.push(id);
  return text + decoder.flush();
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  const TokenInfo* token = impl_->find(id);
  return token ? std::string_view(impl_->bytes).substr(token->begin, token->size) : std::string_view();
}

bool Tokenizer::is_special(int32_t id) const {
  const TokenInfo* token = impl_->find(id);
  return token && token->special;
}

bool Tokenizer::is_added(int32_t id) const {
  const TokenInfo* token = impl_->find(id);
  return token && token->added;
}

std::optional<int32_t> Tokenizer::find_token(std::string_view content) const {
  const int32_t id = impl_->ids_by_content.find(content);
  return id == TokenTable::kNone ? std::nullopt : std::optional(id);
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(impl_->tokens.size()); }
std::optional<int32_t> Tokenizer::bos_id() const { return impl_->bos; }
std::span<const int32_t> Tokenizer::eos_ids() const { return impl_->eos; }
Tokenizer::StartRule Tokenizer::start_rule() const { return impl_->start_rule; }

bool Tokenizer::adds_bos() const {
  const auto& prefix = impl_->prefix;
  return impl_->bos && std::find(prefix.begin(), prefix.end(), *impl_->bos) != prefix.end();
}

}  // namespace latent::text
