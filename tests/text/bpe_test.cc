// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

namespace latent::text {
namespace {

// Vocabulary and merges over a few letters, in rank order; `reference` merges the plain way.
struct ToyBpe {
  BpeSpec spec;
  std::map<std::string, int32_t> ids;
  std::map<std::pair<std::string, std::string>, uint32_t> ranks;

  void add_token(const std::string& token) {
    if (ids.emplace(token, static_cast<int32_t>(ids.size())).second)
      spec.tokens.push_back({token, ids[token]});
  }
  void add_merge(const std::string& left, const std::string& right) {
    const auto rank = static_cast<uint32_t>(ranks.size());
    if (!ids.contains(left) || !ids.contains(right) || !ranks.emplace(std::pair(left, right), rank).second)
      return;
    add_token(left + right);
    spec.merges.push_back({ids[left], ids[right], ids[left + right], rank});
  }
  std::vector<int32_t> reference(std::string_view text) const {
    std::vector<std::string> symbols;
    for (const char c : text) symbols.emplace_back(1, c);
    while (true) {
      size_t best = symbols.size();
      uint32_t best_rank = UINT32_MAX;
      for (size_t i = 0; i + 1 < symbols.size(); ++i) {
        const auto merge = ranks.find({symbols[i], symbols[i + 1]});
        if (merge != ranks.end() && merge->second < best_rank) best = i, best_rank = merge->second;
      }
      if (best == symbols.size()) break;
      symbols[best] += symbols[best + 1];
      symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
    std::vector<int32_t> out;
    for (const std::string& symbol : symbols) out.push_back(ids.at(symbol));
    return out;
  }
};

Bpe created(const BpeSpec& spec) {
  Result<Bpe> bpe = Bpe::create(spec);
  EXPECT_TRUE(bpe.ok()) << bpe.error().message;
  return std::move(*bpe);
}

std::vector<int32_t> encode(const Bpe& bpe, std::string_view text) {
  std::vector<int32_t> ids;
  bpe.encode(text, ids);
  return ids;
}

ToyBpe random_toy(int num_merges) {
  ToyBpe toy;
  for (const char* letter : {"a", "b", "c"}) toy.add_token(letter);
  for (int i = 0; i < num_merges; ++i) {
    const auto pick = [&] {
      return toy.spec.tokens[*rc::gen::inRange<size_t>(0, toy.spec.tokens.size())].bytes;
    };
    const std::string left = pick(), right = pick();
    if (left.size() + right.size() <= 12) toy.add_merge(left, right);
  }
  return toy;
}

std::string random_letters(size_t length) {
  std::string text(length, '\0');
  for (char& c : text) c = *rc::gen::element('a', 'b', 'c');
  return text;
}

TEST(Bpe, short_and_long_pieces_equal_the_plain_algorithm) {
  EXPECT_TRUE(rc::check([] {
    const ToyBpe toy = random_toy(*rc::gen::inRange(0, 30));
    const Bpe bpe = created(toy.spec);
    for (const int longest : {12, 48, 49, 300}) {
      const std::string text = random_letters(static_cast<size_t>(*rc::gen::inRange(0, longest + 1)));
      RC_ASSERT(encode(bpe, text) == toy.reference(text));
    }
  }));
}

TEST(Bpe, runs_of_one_letter_equal_the_plain_algorithm) {
  ToyBpe toy;
  toy.add_token("a");
  for (const char* half : {"a", "aa", "aaaa"}) toy.add_merge(half, half);
  toy.add_merge("aa", "a");
  const Bpe bpe = created(toy.spec);
  for (size_t length = 0; length < 130; ++length)
    ASSERT_EQ(encode(bpe, std::string(length, 'a')), toy.reference(std::string(length, 'a'))) << length;
}

TEST(Bpe, a_token_no_merge_leads_to_is_not_made_unless_whole_pieces_come_first) {
  ToyBpe toy;
  for (const char* token : {"a", "b", "c", "abc"}) toy.add_token(token);
  toy.add_merge("b", "c");
  EXPECT_EQ(encode(created(toy.spec), "abc"), (std::vector<int32_t>{toy.ids["a"], toy.ids["bc"]}));
  toy.spec.whole_pieces_first = true;
  EXPECT_EQ(encode(created(toy.spec), "abc"), (std::vector<int32_t>{toy.ids["abc"]}));
  EXPECT_EQ(encode(created(toy.spec), "abca"),
            (std::vector<int32_t>{toy.ids["a"], toy.ids["bc"], toy.ids["a"]}));
}

TEST(Bpe, of_two_merges_of_one_pair_the_later_counts) {
  ToyBpe toy;
  for (const char* token : {"a", "b"}) toy.add_token(token);
  toy.add_merge("a", "b");
  toy.add_merge("b", "a");
  toy.spec.merges.push_back({toy.ids["a"], toy.ids["b"], toy.ids["ab"], 9});
  EXPECT_EQ(encode(created(toy.spec), "aba"), (std::vector<int32_t>{toy.ids["a"], toy.ids["ba"]}));
}

// Characters: a letter, a two-byte one, sentencepiece's mark; fallback bytes for é only.
BpeSpec character_spec() {
  BpeSpec spec{.byte_level = false, .byte_fallback = true, .unknown = 0};
  for (const char* token : {"<unk>", "▁", "a", "你", "▁a", "<0xC3>", "<0xA9>", "a▁"})
    spec.tokens.push_back({token, static_cast<int32_t>(spec.tokens.size())});
  spec.merges = {{1, 2, 4, 0}};
  return spec;
}

TEST(Bpe, characters_fall_back_to_bytes_then_to_unknown) {
  BpeSpec spec = character_spec();
  EXPECT_EQ(encode(created(spec), "a你é"), (std::vector<int32_t>{2, 3, 5, 6}));
  EXPECT_EQ(encode(created(spec), "aßöa"), (std::vector<int32_t>{2, 0, 0, 2}));
  spec.fuse_unknown = true;
  EXPECT_EQ(encode(created(spec), "aßöaß"), (std::vector<int32_t>{2, 0, 2, 0}));
  spec.unknown.reset();
  EXPECT_EQ(encode(created(spec), "aßöa"), (std::vector<int32_t>{2, 2}));
}

TEST(Bpe, bytes_without_a_token_are_unknown) {
  BpeSpec spec{.unknown = 7};
  spec.tokens = {{"a", 0}};
  EXPECT_EQ(encode(created(spec), "abba"), (std::vector<int32_t>{0, 7, 7, 0}));
  spec.unknown.reset();
  EXPECT_EQ(encode(created(spec), "abba"), (std::vector<int32_t>{0, 0}));
}

// Words are taken one by one where no token crosses from a word into the next mark; it must not show.
TEST(Bpe, cutting_at_marks_changes_nothing) {
  BpeSpec cut = character_spec();
  cut.tokens.pop_back();  // "a▁", a token across a boundary, which forbids cutting
  const BpeSpec whole = character_spec();
  for (const char* text : {"▁a▁a", "▁▁a", "a▁▁▁aa▁", "▁", "▁▁▁", "a▁ß▁a", ""})
    EXPECT_EQ(encode(created(cut), text), encode(created(whole), text)) << text;
  BpeSpec crossing = character_spec();
  crossing.merges = {{2, 1, 7, 0}};  // a ▁ → a▁
  EXPECT_EQ(encode(created(crossing), "a▁a"), (std::vector<int32_t>{7, 2}));
}

TEST(Bpe, refuses_merges_of_negative_ids) {
  BpeSpec spec;
  spec.merges = {{0, -1, 2, 0}};
  EXPECT_FALSE(Bpe::create(spec).ok());
}

}  // namespace
}  // namespace latent::text
