// SPDX-License-Identifier: Apache-2.0
#include "text/regex.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "text/utf8.h"

namespace latent::text {
namespace {

Regex compiled(std::string_view pattern) {
  Result<Regex> regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.error().message;
  return std::move(*regex);
}

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  std::vector<Span> spans;
  EXPECT_TRUE(compiled(pattern).find_all(text, spans).ok());
  std::vector<std::string> out;
  for (const Span span : spans) out.emplace_back(text.substr(span.begin, span.size()));
  return out;
}

// Calls visit with every code point that `pattern` matches.
void for_each_match(std::string_view pattern, const std::function<void(char32_t, bool)>& visit) {
  const Regex regex = compiled(pattern);
  std::vector<Span> spans;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    spans.clear();
    ASSERT_TRUE(regex.find_all(text, spans).ok());
    visit(c, !spans.empty());
  }
}

std::vector<char32_t> members(std::string_view pattern) {
  std::vector<char32_t> out;
  for_each_match(pattern, [&](char32_t c, bool in) {
    if (in) out.push_back(c);
  });
  return out;
}

// White_Space of the Unicode Character Database, which is Oniguruma's and Rust's \s.
const std::vector<char32_t> kWhiteSpace = {
    0x9,    0xA,    0xB,    0xC,    0xD,    0x20,   0x85,   0xA0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003,
    0x2004, 0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000};

TEST(Regex, white_space_is_the_unicode_property) {
  EXPECT_EQ(members(R"(\s)"), kWhiteSpace);
  EXPECT_EQ(members(R"([\s])"), kWhiteSpace);
  EXPECT_EQ(members(R"([^\S])"), kWhiteSpace);
  for_each_match(R"([^\s])", [](char32_t c, bool in) {
    const bool space = std::find(kWhiteSpace.begin(), kWhiteSpace.end(), c) != kWhiteSpace.end();
    ASSERT_NE(in, space) << static_cast<uint32_t>(c);
  });
}

TEST(Regex, han_is_the_script_without_shared_punctuation) {
  const std::vector<char32_t> han = members(R"(\p{Han})");
  const auto contains = [&](char32_t c) { return std::binary_search(han.begin(), han.end(), c); };
  for (const char32_t c : {U'一', U'龥', U'々', U'〇', U'𠀀'})
    EXPECT_TRUE(contains(c)) << static_cast<uint32_t>(c);
  for (const char32_t c : {U'、', U'。', U'「', U'ー', U'・', U'あ', U'ア', U'가', U'㈠'})
    EXPECT_FALSE(contains(c)) << static_cast<uint32_t>(c);
}

TEST(Regex, class_intersection_equals_the_look_ahead_it_stands_for) {
  EXPECT_EQ(members(R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]])"),
            members(R"((?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"));
  EXPECT_EQ(members(R"([\p{L}&&[^\p{Han}\s]])"), members(R"((?!\p{Han})\p{L})"));
}

TEST(Regex, small_differences_between_dialects) {
  EXPECT_EQ(matches(R"(\w+)", "ab\u0301c d_1"),
            (std::vector<std::string>{"ab\u0301c", "d_1"}));  // marks are word
  EXPECT_EQ(matches(R"(a\vb)", "a\vb a\nb"), (std::vector<std::string>{"a\vb"}));
  EXPECT_EQ(matches(R"((?i:'s|'t))", "'S'\u017F't"),
            (std::vector<std::string>{"'S", "'\u017F", "'t"}));  // long s
  EXPECT_EQ(matches(R"(a{,2}b)", "aab"), (std::vector<std::string>{"aab"}));
  EXPECT_EQ(matches(R"(a{x})", "a{x}"), (std::vector<std::string>{"a{x}"}));
  EXPECT_EQ(matches(R"(^b$)", "a\nb\nc"), (std::vector<std::string>{"b"}));  // lines, as in Ruby
  EXPECT_EQ(matches(R"(\u0041\x{42}\x43)", "ABC"), (std::vector<std::string>{"ABC"}));
  EXPECT_EQ(matches(R"([\u0041-\u0043]+)", "ABCD"), (std::vector<std::string>{"ABC"}));
}

TEST(Regex, possessive_and_lookaround_pass) {
  EXPECT_EQ(matches(R"(\s+(?!\S)|\s+)", "a   b  "), (std::vector<std::string>{"  ", " ", "  "}));
  EXPECT_EQ(matches(R"((?<=a)b++)", "abbcb"), (std::vector<std::string>{"bb"}));
}

TEST(Regex, empty_matches_stand_between_others_once) {
  std::vector<Span> spans;
  ASSERT_TRUE(compiled("(?=b)|c").find_all("abcb", spans).ok());
  EXPECT_EQ(spans, (std::vector<Span>{{1, 1}, {2, 3}}));
}

TEST(Regex, trailing_blanks_pattern_keeps_its_meaning_and_its_pace) {
  const std::string_view pattern = R"(\s+$)";
  EXPECT_EQ(matches(pattern, "  a  b  "), (std::vector<std::string>{"  "}));
  EXPECT_EQ(matches(pattern, "a \n b"), (std::vector<std::string>{" "}));
  EXPECT_EQ(matches(pattern, " \n \n"), (std::vector<std::string>{" \n \n"}));
  EXPECT_EQ(matches(pattern, std::string(1 << 20, ' ') + "x"),
            (std::vector<std::string>{}));  // not 2^39 steps
}

TEST(Regex, long_subjects_need_no_stack) {
  std::string text;
  for (int i = 0; i < 1 << 18; ++i) text += "ア";
  EXPECT_EQ(matches(R"([^\r\n\p{L}]?[\p{Lu}\p{Lo}]*[\p{Ll}\p{Lo}]+)", text), std::vector<std::string>{text});
  text.resize(3 << 16);
  EXPECT_EQ(matches(R"((?:ア|b)+)", text), std::vector<std::string>{text});  // beyond the stack of the JIT
}

TEST(Regex, refuses_by_name_what_it_cannot_keep) {
  for (const std::string_view pattern : {R"(\bword)",
                                         R"(\h)",
                                         R"(\R)",
                                         R"(\X)",
                                         R"((a)\1)",
                                         R"([[:alpha:]])",
                                         R"([a[bc]])",
                                         R"((?m:a))",
                                         R"((?<n>a))",
                                         R"(a{2}+)",
                                         R"(a{2}?)",
                                         R"([\p{L}a&&[^b]])",
                                         R"([^\p{L}&&[^b]])",
                                         R"([\p{L}&&\p{N}])",
                                         R"(\p{Nonsense})",
                                         R"(\pL)",
                                         R"([])",
                                         R"([a)",
                                         R"((a)",
                                         R"(a))",
                                         R"(*)",
                                         R"(\)",
                                         R"([\)",
                                         R"(\p{)",
                                         R"(\x)",
                                         R"(\x{110000})",
                                         R"([\p{L}&&[^)",
                                         R"((*UTF))",
                                         "\xFF",
                                         R"(\u12)"}) {
    const Result<Regex> regex = Regex::compile(pattern);
    ASSERT_FALSE(regex.ok()) << pattern;
    EXPECT_FALSE(regex.error().message.empty());
  }
}

TEST(Regex, escaped_text_matches_itself_only) {
  const std::string text = "a.b*c[d]{e}(f)|^$\\ \t\n\x7F#&-你";
  EXPECT_EQ(matches(escape_pattern(text), "x" + text + "x"), std::vector<std::string>{text});
  EXPECT_TRUE(matches(escape_pattern("a.b"), "axb").empty());
}

}  // namespace
}  // namespace latent::text
