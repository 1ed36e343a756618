// SPDX-License-Identifier: Apache-2.0
#include "runtime/text_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "runtime/tiny_tokenizer.h"

namespace latent::runtime {
namespace {

TEST(TextStream, streamed_text_equals_the_text_at_once) {
  const std::unique_ptr<text::Tokenizer> tokenizer = make_tiny_tokenizer(120);
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    std::vector<int32_t> ids(40);
    for (int32_t& id : ids) id = static_cast<int32_t>(rng() % 120);
    const std::string whole = tokenizer->decode(ids, /*skip_special=*/true);
    TextStream stream(tokenizer.get(), {});
    std::string text;
    for (const int32_t id : ids) EXPECT_FALSE(stream.push(id, text));
    stream.finish(text);
    EXPECT_EQ(text, whole);

    // A stop string made of the text's own middle ends it right before.
    const std::string stop = whole.substr(whole.size() / 2, 3);
    TextStream stopped(tokenizer.get(), {stop});
    text.clear();
    bool found = false;
    for (size_t i = 0; i < ids.size() && !found; ++i) found = stopped.push(ids[i], text);
    stopped.finish(text);
    EXPECT_TRUE(found);
    EXPECT_EQ(text, whole.substr(0, whole.find(stop)));
  }
}

TEST(TextStream, without_a_tokenizer_there_is_no_text_and_no_end) {
  TextStream stream(nullptr, {});
  std::string text;
  EXPECT_FALSE(stream.push(5, text));
  stream.finish(text);
  EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace latent::runtime
