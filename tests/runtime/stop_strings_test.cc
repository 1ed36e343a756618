// SPDX-License-Identifier: Apache-2.0
#include "runtime/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace latent::runtime {
namespace {

// The definition, on the whole text: cut before the match that is complete first, the longest of those.
std::string cut_whole(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops)
      if (end >= stop.size() && text.compare(end - stop.size(), stop.size(), stop) == 0)
        longest = std::max(longest, stop.size());
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

std::string random_text(std::mt19937& rng, size_t max_length) {
  // Two letters, so that matches and near-matches abound.
  std::string text(rng() % (max_length + 1), 'a');
  for (char& c : text) c = "ab"[rng() % 2];
  return text;
}

TEST(StopStrings, streamed_text_equals_the_whole_answer_however_it_is_cut) {
  for (uint32_t seed = 0; seed < 5000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    std::vector<std::string> stops(rng() % 4);
    for (std::string& stop : stops) do
        stop = random_text(rng, 6);
      while (stop.empty());
    const std::string text = random_text(rng, 60);
    StopStrings streamed(stops);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t length = std::min<size_t>(1 + rng() % 7, text.size() - at);
      streamed.push(std::string_view(text).substr(at, length), out);
      at += length;
    }
    streamed.flush(out);
    ASSERT_EQ(out, cut_whole(text, stops));
    ASSERT_EQ(streamed.found(), cut_whole(text, stops) != text);
  }
}

TEST(StopStrings, holds_back_only_what_may_still_become_a_stop_string) {
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    std::string stop;
    do stop = random_text(rng, 6);
    while (stop.empty());
    StopStrings stops({stop});
    std::string text, out;
    for (int i = 0; i < 30; ++i) {
      const std::string piece = random_text(rng, 3);
      if (stops.push(piece, out)) break;
      text += piece;
      size_t suffix = std::min(stop.size() - 1, text.size());
      while (suffix > 0 && text.compare(text.size() - suffix, suffix, stop, 0, suffix) != 0) --suffix;
      ASSERT_EQ(stops.num_held(), suffix);
      ASSERT_EQ(out.size(), text.size() - suffix);
    }
  }
}

TEST(StopStrings, a_stop_string_over_two_pieces_leaks_nothing) {
  StopStrings stops({"own fox"});
  std::string out;
  EXPECT_FALSE(stops.push("the brown", out));
  EXPECT_EQ(out, "the br");
  EXPECT_TRUE(stops.push(" fox jumps", out));
  EXPECT_TRUE(stops.push("more", out));
  stops.flush(out);
  EXPECT_EQ(out, "the br");
}

TEST(StopStrings, a_disproved_start_is_released) {
  StopStrings stops({"</s>"});
  std::string out;
  stops.push("a</", out);
  EXPECT_EQ(out, "a");
  stops.push("b>", out);
  EXPECT_EQ(out, "a</b>");
  stops.push("</s", out);
  stops.flush(out);
  EXPECT_EQ(out, "a</b></s");
}

TEST(StopStrings, without_stop_strings_everything_passes) {
  StopStrings stops({});
  std::string out;
  EXPECT_FALSE(stops.push("anything", out));
  EXPECT_EQ(out, "anything");
}

}  // namespace
}  // namespace latent::runtime
