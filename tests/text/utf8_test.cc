// SPDX-License-Identifier: Apache-2.0
#include "text/utf8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace latent::text {
namespace {

// The rule once more, written from the Unicode standard's table 3-7 (well-formed byte sequences) as it
// stands there: the longest prefix of any row, or one byte.
using Row = std::vector<std::pair<int, int>>;
const std::vector<Row> kWellFormed = {
    {{0x00, 0x7F}},
    {{0xC2, 0xDF}, {0x80, 0xBF}},
    {{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}},
    {{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}},
    {{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}},
};

std::string reference_repair(const std::string& bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size();) {
    size_t longest = 0;
    bool whole = false;
    for (const Row& row : kWellFormed) {
      size_t n = 0;
      while (n < row.size() && i + n < bytes.size() && static_cast<uint8_t>(bytes[i + n]) >= row[n].first &&
             static_cast<uint8_t>(bytes[i + n]) <= row[n].second)
        ++n;
      if (n > longest) longest = n, whole = n == row.size();
    }
    out += whole ? bytes.substr(i, longest) : "\xEF\xBF\xBD";
    i += std::max<size_t>(longest, 1);
  }
  return out;
}

// Bytes on both sides of every boundary of the table.
constexpr std::array<uint8_t, 28> kEdges = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0,
                                            0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0,
                                            0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFC, 0xFE, 0xFF};

// One byte of each kind.
constexpr std::array<uint8_t, 12> kKinds = {0x41, 0x80, 0x90, 0xA0, 0xC0, 0xC2,
                                            0xE0, 0xE4, 0xED, 0xF0, 0xF3, 0xF4};

template <class Visit>
void for_each_string(std::span<const uint8_t> alphabet, size_t length, Visit visit) {
  std::string text(length, '\0');
  size_t total = 1;
  for (size_t i = 0; i < length; ++i) total *= alphabet.size();
  for (size_t n = 0; n < total; ++n) {
    size_t rest = n;
    for (char& c : text) c = static_cast<char>(alphabet[rest % alphabet.size()]), rest /= alphabet.size();
    visit(text);
  }
}

TEST(Utf8, repairs_every_string_of_edge_bytes_as_the_standard_says) {
  for (size_t length = 0; length <= 4; ++length)
    for_each_string(kEdges, length, [](const std::string& text) {
      ASSERT_EQ(repair_utf8(text), reference_repair(text)) << testing::PrintToString(text);
      ASSERT_EQ(is_utf8(text), reference_repair(text) == text);
    });
}

TEST(Utf8, repair_in_pieces_equals_repair_at_once) {
  for_each_string(kKinds, 4, [](const std::string& text) {
    for (unsigned cuts = 0; cuts < 8; ++cuts) {
      Utf8Repair repair;
      std::string out;
      size_t begin = 0;
      for (size_t end = 1; end <= text.size(); ++end) {
        if (end < text.size() && !(cuts >> (end - 1) & 1)) continue;
        repair.push(std::string_view(text).substr(begin, end - begin), out);
        ASSERT_LE(repair.num_held(), 3u);
        ASSERT_TRUE(is_utf8(out));
        begin = end;
      }
      repair.flush(out);
      ASSERT_EQ(out, repair_utf8(text)) << testing::PrintToString(text) << " cut " << cuts;
      ASSERT_EQ(repair.num_held(), 0u);
    }
  });
}

TEST(Utf8, code_points_round_trip) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Unit unit = scan_utf8(text);
    ASSERT_EQ(unit.kind, Utf8Kind::kCharacter) << static_cast<uint32_t>(c);
    ASSERT_EQ(unit.length, text.size());
    ASSERT_EQ(code_point(text), c);
  }
}

TEST(Utf8, long_text_is_copied_whole_around_bad_bytes) {
  const std::string good = "plain words, then \xE4\xBD\xA0\xE5\xA5\xBD and more plain words ";
  EXPECT_EQ(repair_utf8(good + "\xFF" + good), good + "\xEF\xBF\xBD" + good);
  EXPECT_EQ(repair_utf8(good + "\xE4\xBD"), good + "\xEF\xBF\xBD");
  EXPECT_EQ(repair_utf8(good + "\xE4\xBD" + "x"), good + "\xEF\xBF\xBD" + "x");
}

}  // namespace
}  // namespace latent::text
