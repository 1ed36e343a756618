// SPDX-License-Identifier: Apache-2.0
#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

namespace latent::text {
namespace {

using Texts = std::vector<std::string>;

Texts run_step(std::unique_ptr<PreTokenizer::Step> step, std::string_view text, bool at_start = true) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(std::move(step));
  Pieces pieces{
      .text = std::string(text), .spans = {{0, static_cast<uint32_t>(text.size())}}, .at_start = at_start};
  EXPECT_TRUE(pre_tokenizer.apply(pieces).ok());
  Texts out;
  for (const Span span : pieces.spans) out.push_back(pieces.text.substr(span.begin, span.size()));
  return out;
}

std::unique_ptr<PreTokenizer::Step> split(std::string_view pattern, SplitBehavior behavior,
                                          bool invert = false) {
  return make_split(std::move(*Regex::compile(pattern)), behavior, invert);
}

// The example of the tokenizers documentation.
TEST(Split, behaviors_are_those_of_the_documentation) {
  const std::string_view text = "the-final--countdown";
  EXPECT_EQ(run_step(split("-", SplitBehavior::kRemoved), text), (Texts{"the", "final", "countdown"}));
  EXPECT_EQ(run_step(split("-", SplitBehavior::kIsolated), text),
            (Texts{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(run_step(split("-", SplitBehavior::kMergedWithPrevious), text),
            (Texts{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(run_step(split("-", SplitBehavior::kMergedWithNext), text),
            (Texts{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(run_step(split("-", SplitBehavior::kContiguous), text),
            (Texts{"the", "-", "final", "--", "countdown"}));
}

TEST(Split, matches_at_both_ends) {
  EXPECT_EQ(run_step(split("-", SplitBehavior::kMergedWithPrevious), "-a-"), (Texts{"-", "a-"}));
  EXPECT_EQ(run_step(split("-", SplitBehavior::kMergedWithNext), "-a-"), (Texts{"-a", "-"}));
  EXPECT_EQ(run_step(split("-", SplitBehavior::kRemoved), "--"), Texts{});
}

TEST(Split, inverted_takes_what_lies_between_matches) {
  EXPECT_EQ(run_step(split("[a-z]+", SplitBehavior::kRemoved, true), "ab, cd!"), (Texts{"ab", "cd"}));
  EXPECT_EQ(run_step(split("[a-z]+", SplitBehavior::kIsolated, true), "ab, cd!"),
            (Texts{"ab", ", ", "cd", "!"}));
}

TEST(Split, sees_nothing_beyond_its_piece) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(split("x", SplitBehavior::kIsolated));
  pre_tokenizer.add(split("a(?=x)|(?<=x)b", SplitBehavior::kIsolated));
  Pieces pieces{.text = "aaxbb", .spans = {{0, 5}}};
  ASSERT_TRUE(pre_tokenizer.apply(pieces).ok());
  EXPECT_EQ(pieces.spans, (std::vector<Span>{{0, 2}, {2, 3}, {3, 5}}));
}

TEST(PrefixSpace, is_added_where_there_is_none) {
  EXPECT_EQ(run_step(make_prefix_space(), "a b"), Texts{" a b"});
  EXPECT_EQ(run_step(make_prefix_space(), " a b"), Texts{" a b"});
}

TEST(Metaspace, follows_scheme_and_split) {
  EXPECT_EQ(run_step(make_metaspace("▁", PrependScheme::kAlways, true), "Hey  you"),
            (Texts{"▁Hey", "▁", "▁you"}));
  EXPECT_EQ(run_step(make_metaspace("▁", PrependScheme::kAlways, true), " Hey"), (Texts{"▁Hey"}));
  EXPECT_EQ(run_step(make_metaspace("▁", PrependScheme::kNever, true), "Hey you"), (Texts{"Hey", "▁you"}));
  EXPECT_EQ(run_step(make_metaspace("▁", PrependScheme::kAlways, false), "Hey you"), (Texts{"▁Hey▁you"}));
  EXPECT_EQ(run_step(make_metaspace("▁", PrependScheme::kFirst, false), "Hey"), (Texts{"▁Hey"}));
  EXPECT_EQ(run_step(make_metaspace("▁", PrependScheme::kFirst, false), "Hey", false), (Texts{"Hey"}));
}

}  // namespace
}  // namespace latent::text
