// SPDX-License-Identifier: Apache-2.0
#include "text/decoder_spec.h"

#include <gtest/gtest.h>

namespace latent::text {
namespace {

TEST(DecoderSpec, byte_level_maps_whole_tokens_or_leaves_them) {
  const DecoderSpec spec{.byte_level = true};
  EXPECT_EQ(spec.bytes_of("Ġhi"), " hi");
  EXPECT_EQ(spec.bytes_of("ä½"), "\xE4\xBD");
  EXPECT_EQ(spec.bytes_of("Ġ你"), "Ġ你");  // not of the alphabet, so just text
}

TEST(DecoderSpec, replacements_and_fallback) {
  const DecoderSpec spec{.replacements = {{"▁", " "}, {"_", ""}}, .byte_fallback = true};
  EXPECT_EQ(spec.bytes_of("▁a▁_b"), " a b");
  EXPECT_EQ(spec.bytes_of("<0x0A>"), "\n");
  EXPECT_EQ(spec.bytes_of("<0xe4>"), "\xE4");
  EXPECT_EQ(spec.bytes_of("<0x00>"), std::string(1, '\0'));
  for (const char* other : {"<0x0G>", "<0x0A", "<0x00A>", "<0x+A>", "<0xA >", "0x0A"})
    EXPECT_EQ(spec.bytes_of(other), other);
  EXPECT_EQ((DecoderSpec{}.bytes_of("<0x0A>")), "<0x0A>");
}

TEST(DecoderSpec, a_replacement_that_holds_what_it_replaces_ends) {
  const DecoderSpec spec{.replacements = {{"a", "aa"}}};
  EXPECT_EQ(spec.bytes_of("aba"), "aabaa");
}

}  // namespace
}  // namespace latent::text
