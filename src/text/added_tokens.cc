// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <algorithm>

#include "text/utf8.h"

namespace latent::text {
namespace {

// What Rust's regex takes for \w, which decides what a single word is.
constexpr std::string_view kWordCharacter = R"([\w\u200c\u200d])";

bool is_white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::string_view first_character(std::string_view text) { return text.substr(0, scan_utf8(text).length); }

std::string_view last_character(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  return text.substr(begin);
}

uint32_t skip_space_left(std::string_view text, uint32_t at, uint32_t stop) {
  while (at > stop) {
    const std::string_view c = last_character(text.substr(stop, at - stop));
    if (!is_white_space(code_point(c))) break;
    at -= static_cast<uint32_t>(c.size());
  }
  return at;
}

uint32_t skip_space_right(std::string_view text, uint32_t at, uint32_t stop) {
  while (at < stop) {
    const std::string_view c = first_character(text.substr(at, stop - at));
    if (!is_white_space(code_point(c))) break;
    at += static_cast<uint32_t>(c.size());
  }
  return at;
}

uint64_t edge(uint32_t node, char byte) { return uint64_t{node} << 8 | static_cast<uint8_t>(byte); }

}  // namespace

Result<AddedTokenFinder> AddedTokenFinder::create(const std::vector<AddedToken>& tokens,
                                                  const std::vector<std::string>& patterns) {
  Result<Regex> word = Regex::compile(kWordCharacter);
  if (!word) return word.error();
  AddedTokenFinder finder(std::move(*word));
  finder.token_of_node_.push_back(-1);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (patterns[i].empty()) continue;
    uint32_t node = 0;
    for (const char byte : patterns[i]) {
      const auto next = static_cast<uint32_t>(finder.token_of_node_.size());
      const auto [at, is_new] = finder.edges_.try_emplace(edge(node, byte), next);
      if (is_new) finder.token_of_node_.push_back(-1);
      node = at->second;
    }
    finder.starts_[static_cast<uint8_t>(patterns[i][0])] = true;
    finder.token_of_node_[node] = static_cast<int32_t>(finder.tokens_.size());
    finder.tokens_.push_back(tokens[i]);
  }
  return finder;
}

std::optional<AddedTokenFinder::Found> AddedTokenFinder::longest_at(std::string_view text) const {
  std::optional<Found> best;
  uint32_t node = 0;
  for (uint32_t i = 0; i < text.size(); ++i) {
    const auto next = edges_.find(edge(node, text[i]));
    if (next == edges_.end()) break;
    node = next->second;
    const int32_t token = token_of_node_[node];
    if (token >= 0) best = Found{static_cast<uint32_t>(token), i + 1};
  }
  return best;
}

Result<bool> AddedTokenFinder::touches_word(std::string_view text, Span match) const {
  std::string neighbours;
  if (match.begin > 0) neighbours += last_character(text.substr(0, match.begin));
  if (match.end < text.size()) neighbours += first_character(text.substr(match.end));
  std::vector<Span> words;
  if (Status found = word_.find_all(neighbours, words); !found) return found.error();
  return !words.empty();
}

Status AddedTokenFinder::split(std::string_view text, Span within, const std::vector<Span>& trusted,
                               std::vector<Segment>& out) const {
  const std::string_view scope = text.substr(within.begin, within.size());
  uint32_t done = 0;  // in scope, as are all positions below
  const auto emit = [&](Span span, int32_t id) {
    out.push_back({{within.begin + span.begin, within.begin + span.end}, id});
  };
  for (const Span range : trusted) {
    const uint32_t begin = std::max(range.begin, within.begin) - within.begin;
    const uint32_t end = std::max(std::min(range.end, within.end), within.begin) - within.begin;
    for (uint32_t at = begin; at < end; ++at) {
      if (!starts_[static_cast<uint8_t>(scope[at])]) continue;
      const std::optional<Found> found = longest_at(scope.substr(at, end - at));
      if (!found) continue;
      const AddedToken& token = tokens_[found->token];
      Span match{at, at + found->length};
      at = match.end - 1;
      if (token.single_word) {
        const Result<bool> touches = touches_word(scope, match);
        if (!touches) return touches.error();
        if (*touches) continue;
      }
      if (token.lstrip) match.begin = skip_space_left(scope, match.begin, done);
      if (token.rstrip) match.end = skip_space_right(scope, match.end, scope.size());
      if (match.begin > done) emit({done, match.begin}, Segment::kText);
      emit(match, token.id);
      done = match.end;
      at = done - 1;
    }
  }
  if (done < scope.size()) emit({done, static_cast<uint32_t>(scope.size())}, Segment::kText);
  return {};
}

}  // namespace latent::text
