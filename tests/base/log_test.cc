// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <gtest/gtest.h>

#include <sstream>
#include <thread>
#include <vector>

namespace latent {
namespace {

class LogTest : public ::testing::Test {
 protected:
  void TearDown() override { set_log_level(before_); }
  LogLevel before_ = log_level();
};

TEST_F(LogTest, lines_below_the_level_are_dropped_and_none_reach_stdout) {
  set_log_level(LogLevel::kWarn);
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  log(LogLevel::kInfo, "not {}", "this");
  log(LogLevel::kError, "page {} is gone", 7);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "latent: error: page 7 is gone\n");
}

TEST_F(LogTest, lines_of_several_threads_do_not_mix) {
  set_log_level(LogLevel::kInfo);
  ::testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([] {
      for (int k = 0; k < 50; ++k) log(LogLevel::kInfo, "{}", std::string(60, 'x'));
    });
  for (std::thread& t : threads) t.join();
  std::istringstream lines(::testing::internal::GetCapturedStderr());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_EQ(line, "latent: info: " + std::string(60, 'x'));
  EXPECT_EQ(count, 200);
}

}  // namespace
}  // namespace latent
