// SPDX-License-Identifier: Apache-2.0
#include "text/token_table.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

namespace latent::text {
namespace {

TEST(TokenTable, finds_what_was_inserted_and_nothing_else) {
  EXPECT_TRUE(rc::check([](const std::vector<std::string>& tokens, const std::vector<std::string>& others) {
    TokenTable table(tokens.size());
    std::map<std::string, int32_t> expected;
    for (size_t i = 0; i < tokens.size(); ++i) {
      table.insert(tokens[i], static_cast<int32_t>(i));
      expected.emplace(tokens[i], static_cast<int32_t>(i));  // the first id stays
    }
    for (const auto& [token, id] : expected) RC_ASSERT(table.find(token) == id);
    for (const std::string& other : others)
      if (!expected.contains(other)) RC_ASSERT(table.find(other) == TokenTable::kNone);
  }));
}

TEST(TokenTable, tells_lengths_and_zero_bytes_apart) {
  TokenTable table(40);
  for (int32_t length = 0; length < 40; ++length)
    table.insert(std::string(static_cast<size_t>(length), '\0'), length);
  for (int32_t length = 0; length < 40; ++length)
    EXPECT_EQ(table.find(std::string(static_cast<size_t>(length), '\0')), length);
  EXPECT_EQ(table.find(std::string(40, '\0')), TokenTable::kNone);
}

TEST(TokenTable, an_empty_table_finds_nothing) { EXPECT_EQ(TokenTable().find("a"), TokenTable::kNone); }

}  // namespace
}  // namespace latent::text
