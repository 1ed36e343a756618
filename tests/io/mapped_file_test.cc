// SPDX-License-Identifier: Apache-2.0
#include "io/mapped_file.h"

#include "testing/temp_folder.h"

namespace latent::io {
namespace {

TEST(MappedFile, shows_the_bytes_of_a_file_and_keeps_them_when_moved) {
  testing::TempFolder folder;
  const std::string content(10'000, 'x');
  Result<MappedFile> file = MappedFile::open(folder.write("a", content + "end"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  MappedFile moved = *std::move(file);
  moved.drop(moved.bytes());  // dropped pages are read again from the file
  ASSERT_EQ(moved.bytes().size(), content.size() + 3);
  EXPECT_EQ(static_cast<char>(moved.bytes()[content.size()]), 'e');
}

TEST(MappedFile, maps_an_empty_file_to_no_bytes) {
  testing::TempFolder folder;
  Result<MappedFile> file = MappedFile::open(folder.write("empty", ""));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->bytes().empty());
}

TEST(MappedFile, refuses_what_is_missing_or_no_file) {
  testing::TempFolder folder;
  EXPECT_EQ(MappedFile::open(folder / "none").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(MappedFile::open(folder.path()).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace latent::io
