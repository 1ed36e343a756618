// SPDX-License-Identifier: Apache-2.0
#include "text/byte_alphabet.h"

#include <gtest/gtest.h>

#include <set>

namespace latent::text {
namespace {

TEST(ByteAlphabet, is_a_bijection_onto_printable_characters) {
  std::set<char32_t> seen;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t c = byte_to_character(static_cast<uint8_t>(byte));
    EXPECT_TRUE(seen.insert(c).second);
    EXPECT_EQ(character_to_byte(c), byte);
    EXPECT_TRUE(c > ' ' && c != 0x7F && c != 0xAD) << byte;
  }
}

TEST(ByteAlphabet, has_the_well_known_stand_ins) {
  EXPECT_EQ(byte_to_character(' '), U'Ġ');
  EXPECT_EQ(byte_to_character('\n'), U'Ċ');
  EXPECT_EQ(byte_to_character('\t'), U'ĉ');
  EXPECT_EQ(byte_to_character(0), U'Ā');
  EXPECT_EQ(byte_to_character(0xAD), U'Ń');
  EXPECT_EQ(byte_to_character('a'), U'a');
}

TEST(ByteAlphabet, a_text_with_other_characters_stands_for_no_bytes) {
  EXPECT_EQ(bytes_of_mapped("Ġä½ł"), " 你");
  EXPECT_EQ(bytes_of_mapped(""), "");
  for (const char* text : {"a b", "▁a", "你", "a\xFF"})
    EXPECT_EQ(bytes_of_mapped(text), std::nullopt) << text;
  EXPECT_EQ(character_to_byte(U'ń'), std::nullopt);  // the first character after the stand-ins
}

}  // namespace
}  // namespace latent::text
