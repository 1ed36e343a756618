// SPDX-License-Identifier: Apache-2.0
#include "io/json_text.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "testing/temp_folder.h"

namespace latent::io {
namespace {

TEST(JsonText, accepts_json) {
  for (const char* text :
       {"{}", "[1, 2.5, -3e4, \"\\u00e9\", null, true]", R"({"a": {"a": 1}, "b": [{"a": 2}, {"a": 3}]})"})
    EXPECT_TRUE(check_json(text).ok()) << text;
}

TEST(JsonText, refuses_malformed_text) {
  for (const char* text :
       {"", "{", "{\"a\" 1}", "{} {}", "{\"a\": NaN}", "{\"a\": 1,}", "nul", "1e999", "\"\xff\""})
    EXPECT_EQ(check_json(text).error().code, ErrorCode::kCorrupt) << text;
}

TEST(JsonText, refuses_a_key_that_appears_twice_in_one_object) {
  const Status status = check_json(R"({"x": {"key": 1, "other": {}, "key": 2}})");
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("'key' appears twice"), std::string::npos);
}

TEST(JsonText, refuses_deep_nesting) {
  EXPECT_TRUE(check_json(std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']')).ok());
  EXPECT_FALSE(check_json(std::string(kMaxJsonDepth + 1, '[') + std::string(kMaxJsonDepth + 1, ']')).ok());
  EXPECT_FALSE(check_json(std::string(1'000'000, '[')).ok());
}

TEST(ReadTextFile, reads_whole_files_up_to_the_limit) {
  testing::TempFolder folder;
  const auto path = folder.write("a.json", std::string("{\0}", 3));
  EXPECT_EQ(read_text_file(path, 3).value(), std::string("{\0}", 3));
  EXPECT_EQ(read_text_file(path, 2).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(read_text_file(folder / "b.json", 2).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(read_text_file(folder.path(), 2).error().code, ErrorCode::kUnsupported);
}

TEST(ReadTextFile, reads_pipes_and_devices_up_to_the_limit) {
  EXPECT_EQ(read_text_file("/dev/null", 2).value(), "");
  EXPECT_EQ(read_text_file("/dev/zero", 1000).error().code, ErrorCode::kCorrupt);
  const testing::TempFolder folder;
  const std::filesystem::path pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string text(200'000, 'x');  // more than a pipe holds
  std::thread writer([&] { std::ofstream(pipe) << text; });
  EXPECT_EQ(read_text_file(pipe, 1 << 20).value(), text);
  writer.join();
}

TEST(ReadTextFile, a_file_that_may_not_be_read_is_named_with_the_reason) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const testing::TempFolder folder;
  const auto path = folder.write("secret", "x");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  const Error error = read_text_file(path, 10).error();
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_NE(error.message.find("Permission denied"), std::string::npos) << error.message;
}

}  // namespace
}  // namespace latent::io
