// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

namespace latent::text {
namespace {

struct Piece {
  std::string text;
  int32_t id;
  bool operator==(const Piece&) const = default;
};

AddedTokenFinder make_finder(const std::vector<AddedToken>& tokens) {
  std::vector<std::string> patterns;
  for (const AddedToken& token : tokens) patterns.push_back(token.content);
  auto finder = AddedTokenFinder::create(tokens, patterns);
  EXPECT_TRUE(finder.ok());
  return std::move(*finder);
}

std::vector<Piece> split(const AddedTokenFinder& finder, std::string_view text,
                         const std::vector<Span>& trusted) {
  std::vector<Segment> segments;
  EXPECT_TRUE(finder.split(text, {0, static_cast<uint32_t>(text.size())}, trusted, segments).ok());
  std::vector<Piece> pieces;
  for (const Segment& s : segments)
    pieces.push_back({std::string(text.substr(s.span.begin, s.span.size())), s.id});
  return pieces;
}

constexpr int32_t kText = Segment::kText;

TEST(AddedTokenFinder, takes_the_leftmost_then_the_longest) {
  const auto finder =
      make_finder({{.content = "ab", .id = 1}, {.content = "abcd", .id = 2}, {.content = "bc", .id = 3}});
  EXPECT_EQ(split(finder, "xabcdabce", {{0, 9}}),
            (std::vector<Piece>{{"x", kText}, {"abcd", 2}, {"ab", 1}, {"ce", kText}}));
}

TEST(AddedTokenFinder, finds_tokens_only_wholly_inside_trusted_ranges) {
  const auto finder = make_finder({{.content = "<t>", .id = 1}});
  EXPECT_EQ(split(finder, "<t><t><t>", {{3, 6}}),
            (std::vector<Piece>{{"<t>", kText}, {"<t>", 1}, {"<t>", kText}}));
  EXPECT_EQ(split(finder, "<t><t>", {{0, 2}, {4, 6}}), (std::vector<Piece>{{"<t><t>", kText}}));
  EXPECT_EQ(split(finder, "<t>", {}), (std::vector<Piece>{{"<t>", kText}}));
  EXPECT_EQ(split(finder, "<t><t>", {{0, 4}, {4, 6}}), (std::vector<Piece>{{"<t>", 1}, {"<t>", kText}}));
}

TEST(AddedTokenFinder, a_longer_token_that_leaves_the_range_does_not_hide_a_shorter_one) {
  const auto finder = make_finder({{.content = "ab", .id = 1}, {.content = "abc", .id = 2}});
  EXPECT_EQ(split(finder, "abc", {{0, 2}}), (std::vector<Piece>{{"ab", 1}, {"c", kText}}));
}

TEST(AddedTokenFinder, stripping_takes_white_space_but_no_other_token) {
  const auto finder = make_finder({{.content = "L", .id = 1, .lstrip = true},
                                   {.content = "R", .id = 2, .rstrip = true},
                                   {.content = " s", .id = 3}});
  EXPECT_EQ(split(finder, "a \u2003L", {{0, 6}}), (std::vector<Piece>{{"a", kText}, {" \u2003L", 1}}));
  EXPECT_EQ(split(finder, "R \n a", {{0, 5}}), (std::vector<Piece>{{"R \n ", 2}, {"a", kText}}));
  EXPECT_EQ(split(finder, "R s", {{0, 3}}), (std::vector<Piece>{{"R ", 2}, {"s", kText}}));
  EXPECT_EQ(split(finder, "R  L", {{0, 4}}), (std::vector<Piece>{{"R  ", 2}, {"L", 1}}));
}

TEST(AddedTokenFinder, empty_contents_are_never_found) {
  EXPECT_EQ(split(make_finder({{.content = "", .id = 1}}), "ab", {{0, 2}}),
            (std::vector<Piece>{{"ab", kText}}));
}

// Against a search that tries every token at every place.
TEST(AddedTokenFinder, equals_the_plain_search) {
  EXPECT_TRUE(rc::check([] {
    const auto letters = rc::gen::container<std::string>(rc::gen::element('a', 'b'));
    auto contents = *rc::gen::unique<std::vector<std::string>>(rc::gen::nonEmpty(letters));
    std::vector<AddedToken> tokens;
    for (const std::string& content : contents)
      tokens.push_back({.content = content, .id = static_cast<int32_t>(tokens.size())});
    const std::string text = *letters;
    std::vector<Piece> expected;
    for (size_t i = 0; i < text.size();) {
      const AddedToken* best = nullptr;
      for (const AddedToken& token : tokens)
        if (text.compare(i, token.content.size(), token.content) == 0 &&
            (!best || token.content.size() > best->content.size()))
          best = &token;
      if (best) {
        expected.push_back({best->content, best->id});
      } else if (expected.empty() || expected.back().id != kText) {
        expected.push_back({text.substr(i, 1), kText});
      } else {
        expected.back().text += text[i];
      }
      i += best ? best->content.size() : 1;
    }
    RC_ASSERT(split(make_finder(tokens), text, {{0, static_cast<uint32_t>(text.size())}}) == expected);
  }));
}

}  // namespace
}  // namespace latent::text
