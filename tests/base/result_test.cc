// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace latent {
namespace {

Result<std::unique_ptr<int>> half(int n) {
  if (n % 2 != 0) return make_error(ErrorCode::kInvalidArgument, "{} is odd", n);
  return std::make_unique<int>(n / 2);
}

TEST(Result, holds_a_value_that_can_only_move) {
  Result<std::unique_ptr<int>> r = half(8);
  ASSERT_TRUE(r.ok());
  const std::unique_ptr<int> value = *std::move(r);
  EXPECT_EQ(*value, 4);
}

TEST(Result, holds_an_error_with_context) {
  const Result<std::unique_ptr<int>> r = half(7);
  ASSERT_FALSE(r.ok());
  const Error error = r.error().with_context("config.json");
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error.message, "config.json: 7 is odd");
}

TEST(Result, a_status_is_ok_until_it_has_an_error) {
  Status status;
  EXPECT_TRUE(status);
  status = make_error(ErrorCode::kIo, "no");
  EXPECT_FALSE(status);
}

TEST(Result, every_code_has_a_name_of_its_own) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::kIo); ++code)
    names.insert(error_code_name(static_cast<ErrorCode>(code)));
  EXPECT_EQ(names.size(), static_cast<size_t>(ErrorCode::kIo) + 1);
  EXPECT_EQ(names.count("unknown"), 0u);
}

}  // namespace
}  // namespace latent
