// SPDX-License-Identifier: Apache-2.0
// Kimi-K2's and Moonlight's tokenizer: tiktoken ranks and a pattern of their own.
#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <unordered_set>

#include "text/tokenizer_parts.h"

namespace latent::text {
namespace {

// Letters are taken apart from Han and by case (a word is capitals, then small letters), digits in threes.
constexpr std::string_view kPattern =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr int32_t kNumReserved = 256 + 2;
constexpr size_t kMaxTokenBytes = 1024;  // real ones stay below 200; every cut of a token is looked at

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string out;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t digit = i >= text.size() - padding ? 0 : kDigits.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if (i % 4 == 3)
      for (const int shift : {16, 8, 0}) out.push_back(static_cast<char>(bits >> shift));
  }
  out.resize(out.size() - padding);
  return out;
}

// "BASE64 RANK"
std::optional<TokenizerParts::Entry> read_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  std::optional<std::string> bytes = decode_base64(line.substr(0, space));
  int32_t rank = -1;
  const char* end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + space + 1, end, rank);
  if (!bytes || bytes->size() > kMaxTokenBytes || error != std::errc() || stop != end || rank < 0 ||
      rank >= TokenizerParts::kMaxTokens)
    return std::nullopt;
  return TokenizerParts::Entry{std::move(*bytes), rank};
}

Status read_ranks(std::string_view text, TokenizerParts& parts) {
  std::unordered_set<int32_t> ids;
  std::unordered_set<std::string> tokens;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    std::optional<TokenizerParts::Entry> entry = read_line(line);
    if (!entry) return make_error(ErrorCode::kCorrupt, "line {}: not 'BASE64 RANK'", number);
    if (!ids.insert(entry->id).second || !tokens.insert(entry->content).second)
      return make_error(ErrorCode::kCorrupt, "line {}: token or rank {} for the second time", number,
                        entry->id);
    parts.vocabulary.push_back(std::move(*entry));
  }
  if (parts.vocabulary.empty()) return make_error(ErrorCode::kCorrupt, "no ranks");
  return {};
}

// tiktoken merges any two neighbours that make a token together, lowest rank of the result first: as merges,
// every way to cut a token into two tokens.
void add_merges(TokenizerParts& parts) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (const TokenizerParts::Entry& entry : parts.vocabulary) ids.emplace(entry.content, entry.id);
  for (const TokenizerParts::Entry& entry : parts.vocabulary) {
    const std::string_view token = entry.content;
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ids.find(token.substr(0, cut));
      const auto right = ids.find(token.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      parts.bpe.merges.push_back({left->second, right->second, entry.id, static_cast<uint32_t>(entry.id)});
    }
  }
}

Status add_control_tokens(const TokenizerConfig& config, TokenizerParts& parts) {
  std::unordered_map<int32_t, const AddedToken*> named;
  for (const AddedToken& token : config.added_tokens) named.emplace(token.id, &token);
  const auto first = static_cast<int32_t>(parts.vocabulary.size());
  for (const TokenizerParts::Entry& entry : parts.vocabulary)
    if (entry.id >= first)
      return make_error(ErrorCode::kCorrupt, "rank {} among {} tokens: ranks must run from 0 without gaps",
                        entry.id, first);
  for (int32_t id = first; id < first + kNumReserved; ++id) {
    const auto at = named.find(id);
    AddedToken token =
        at != named.end()
            ? *at->second
            : AddedToken{.content = fmt::format("<|reserved_token_{}|>", id), .id = id, .special = true};
    // Its own code finds them in the text as it is, and knows no stripping.
    token.normalized = token.lstrip = token.rstrip = token.single_word = false;
    parts.added.push_back(std::move(token));
  }
  return {};
}

}  // namespace

Result<TokenizerParts> parse_tiktoken(std::string_view ranks, const TokenizerConfig& config) {
  TokenizerParts parts;
  if (Status read = read_ranks(ranks, parts); !read) return read.error();
  if (Status added = add_control_tokens(config, parts); !added) return added.error();
  Result<Regex> pattern = Regex::compile(kPattern);
  if (!pattern) return pattern.error();
  parts.pre_tokenizer.add(make_split(std::move(*pattern), SplitBehavior::kIsolated, false));
  parts.bpe.byte_level = true;
  parts.bpe.whole_pieces_first = true;
  add_merges(parts);
  return parts;
}

}  // namespace latent::text
