// SPDX-License-Identifier: Apache-2.0
// Finds added tokens (control tokens among them) in text, before any other step of a tokenizer sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/regex.h"

namespace latent::text {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;      // a control token: left out of decoded text if asked
  bool normalized = false;   // looked for in normalized text, else in the text as given
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool single_word = false;  // only where no word character touches it
};

// A stretch of text: an added token, or text between them (id kText).
struct Segment {
  static constexpr int32_t kText = -1;
  Span span;
  int32_t id;
};

// Immutable. Looks for all tokens at once: leftmost first, of those the longest.
class AddedTokenFinder {
 public:
  // `patterns[i]` is the text to look for in place of tokens[i].content; empty ones are never found.
  static Result<AddedTokenFinder> create(const std::vector<AddedToken>& tokens,
                                         const std::vector<std::string>& patterns);

  // Splits text[within] at the tokens that lie wholly inside one of `trusted` (in order, disjoint), and
  // appends the segments. Cost: O(text · longest token) at worst, one table look-up a byte usually.
  Status split(std::string_view text, Span within, const std::vector<Span>& trusted,
               std::vector<Segment>& out) const;

  bool empty() const { return tokens_.empty(); }

 private:
  struct Found {
    uint32_t token;
    uint32_t length;
  };

  explicit AddedTokenFinder(Regex word) : word_(std::move(word)) {}
  std::optional<Found> longest_at(std::string_view text) const;
  Result<bool> touches_word(std::string_view text, Span match) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<uint64_t, uint32_t> edges_;  // (node, byte) → node; node 0 is the root
  std::vector<int32_t> token_of_node_;            // index in tokens_, or −1
  bool starts_[256] = {};                         // bytes that begin a token
  Regex word_;
};

}  // namespace latent::text
