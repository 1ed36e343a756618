// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

#include <cstring>
#include <random>

#include "tensor/tensor.h"
#include "testing/temp_folder.h"

namespace latent::io {
namespace {

// A file image: the length, the header, `data_bytes` bytes of data.
std::string image(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  bytes += header;
  for (size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
  return bytes;
}

Result<SafetensorsFile> parse(const std::string& bytes) {
  return SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "test.safetensors");
}

// The message of the refusal, which must name the file.
std::string refusal(const std::string& bytes) {
  const Result<SafetensorsFile> file = parse(bytes);
  if (file.ok()) return "accepted";
  EXPECT_EQ(file.error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(file.error().message.starts_with("test.safetensors: ")) << file.error().message;
  return file.error().message;
}

#define EXPECT_REFUSED(bytes, phrase) \
  EXPECT_NE(refusal(bytes).find(phrase), std::string::npos) << refusal(bytes)

const char* const kTwo =
    R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"BF16","shape":[3,1],"data_offsets":[8,14]}})";

TEST(Safetensors, lists_tensors_by_name_with_their_bytes) {
  const std::string bytes = image(kTwo, 14);
  const Result<SafetensorsFile> file = parse(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[0].name, "a");
  const FileTensor* a = file->find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, DType::kBF16);
  EXPECT_EQ(a->dims, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(a->bytes.size(), 6u);
  EXPECT_EQ(static_cast<int>(a->bytes[0]), 8);
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST(Safetensors, accepts_scalars_empty_tensors_foreign_dtypes_and_metadata) {
  const std::string bytes = image(
      R"({"__metadata__":{"format":"pt"},"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("e":{"dtype":"F32","shape":[9223372036854775807,2,0],"data_offsets":[4,4]},)"
      R"("f":{"dtype":"F64","shape":[1],"data_offsets":[4,12]},"n":{"dtype":"F4","shape":[4],"data_offsets":[12,14]}}   )",
      14);
  const Result<SafetensorsFile> file = parse(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->metadata().at("format"), "pt");
  EXPECT_EQ(file->find("f")->dtype, std::nullopt);
  EXPECT_EQ(file->find("f")->dtype_name, "F64");
  EXPECT_TRUE(file->find("s")->dims.empty());
  EXPECT_EQ(parse(image("{}", 0))->tensors().size(), 0u);
}

TEST(Safetensors, refuses_headers_that_do_not_fit_the_file) {
  EXPECT_REFUSED("", "too few");
  EXPECT_REFUSED(std::string(7, '\0'), "too few");
  EXPECT_REFUSED(std::string(8, '\0'), "does not begin with '{'");
  EXPECT_REFUSED(std::string(8, '\xff'), "allowed");
  const std::string whole = image(kTwo, 14);
  EXPECT_REFUSED(whole.substr(0, 40), "truncated");
}

TEST(Safetensors, refuses_every_truncation) {
  const std::string whole = image(kTwo, 14);
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(refusal(whole.substr(0, size)), "accepted") << size;
}

TEST(Safetensors, refuses_trailing_bytes) {
  EXPECT_REFUSED(image(kTwo, 15), "1 bytes follow the last tensor");
  EXPECT_REFUSED(image(kTwo, 14 + 4096), "4096 bytes follow");
  EXPECT_REFUSED(image("{}", 1), "1 bytes follow");
}

TEST(Safetensors, refuses_gaps_and_overlaps) {
  EXPECT_REFUSED(image(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6), "gap");
  EXPECT_REFUSED(
      image(
          R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
          7),
      "overlaps");
  EXPECT_REFUSED(
      image(
          R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
          4),
      "overlaps");
}

TEST(Safetensors, refuses_entries_that_contradict_themselves) {
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return image("{\"t\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}",
                 16);
  };
  EXPECT_REFUSED(entry("\"F32\"", "[5]", "[0,16]"), "need 20 bytes, its offsets hold 16");
  EXPECT_REFUSED(entry("\"F32\"", "[4]", "[0,32]"), "outside the data");
  EXPECT_REFUSED(entry("\"F32\"", "[4]", "[16,0]"), "outside the data");
  EXPECT_REFUSED(entry("\"F32\"", "[4]", "[0]"), "1 numbers");
  EXPECT_REFUSED(entry("\"F32\"", "[-4]", "[0,16]"), "-4");
  EXPECT_REFUSED(entry("\"F32\"", "[4.0]", "[0,16]"), "4.0");
  EXPECT_REFUSED(entry("\"F32\"", "[99999999999999999999]", "[0,16]"), "integer");
  EXPECT_REFUSED(entry("\"F32\"", "[4611686018427387904, 4611686018427387904]", "[0,16]"), "overflows");
  EXPECT_REFUSED(entry("\"F32\"", "4", "[0,16]"), "'shape'");
  EXPECT_REFUSED(entry("\"F99\"", "[4]", "[0,16]"), "'F99' is no dtype");
  EXPECT_REFUSED(entry("4", "[4]", "[0,16]"), "'dtype'");
  EXPECT_REFUSED(entry("\"F4\"", "[3]", "[0,16]"), "whole number of bytes");
  EXPECT_REFUSED(image(R"({"t":3})", 0), "not an object");
  EXPECT_REFUSED(image(R"({"__metadata__":{"a":1}})", 0), "__metadata__");
}

TEST(Safetensors, refuses_duplicate_keys_and_broken_json) {
  EXPECT_REFUSED(
      image(
          R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
          2),
      "'t' appears twice");
  EXPECT_REFUSED(image(R"({"t":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1),
                 "'dtype' appears twice");
  EXPECT_REFUSED(image("{\"t\":", 1), "JSON");
}

// contract: C15
// Whatever single byte is damaged, parsing ends with a value or an error, and never reads outside the bytes.
TEST(Safetensors, survives_every_damaged_byte) {
  const std::string whole = image(kTwo, 14);
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const char damage : {'\0', '"', '9', '{', '\xff'}) {
      std::string bytes = whole;
      bytes[i] = damage;
      const Result<SafetensorsFile> file = parse(bytes);
      if (!file) continue;
      for (const FileTensor& t : file->tensors()) EXPECT_LE(t.bytes.size(), 14u);
    }
  }
}

Tensor make(DType dtype, const Shape& shape, uint32_t seed) {
  Tensor tensor = Tensor::create(dtype, shape).value();
  std::mt19937 random(seed);
  auto* bytes = static_cast<unsigned char*>(tensor.view().raw());
  for (int64_t i = 0; i < tensor.view().num_bytes(); ++i) bytes[i] = static_cast<unsigned char>(random());
  return tensor;
}

TEST(WriteSafetensors, round_trips_names_shapes_and_bytes) {
  testing::TempFolder folder;
  const Tensor a = make(DType::kU8, {3}, 1), b = make(DType::kF32, {2, 5}, 2),
               c = make(DType::kBF16, {7, 3}, 3);
  const Tensor empty = make(DType::kF32, {0, 4}, 4);
  const NamedView views[] = {
      {"a", a.view()}, {"b", b.view()}, {"c.transposed", c.view().transpose(0, 1)}, {"e", empty.view()}};
  ASSERT_TRUE(write_safetensors(folder / "x.safetensors", views, {{"who", "test"}}).ok());
  const Result<SafetensorsFile> file = SafetensorsFile::open(folder / "x.safetensors");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->metadata().at("who"), "test");
  ASSERT_EQ(file->tensors().size(), 4u);
  EXPECT_EQ(std::memcmp(file->find("a")->bytes.data(), a.view().raw(), 3), 0);
  EXPECT_EQ(std::memcmp(file->find("b")->bytes.data(), b.view().raw(), 40), 0);
  EXPECT_EQ(file->find("c.transposed")->dims, (std::vector<int64_t>{3, 7}));
  const auto* written = reinterpret_cast<const uint16_t*>(file->find("c.transposed")->bytes.data());
  for (int i = 0; i < 7; ++i)
    for (int j = 0; j < 3; ++j) EXPECT_EQ(written[j * 7 + i], c.data<uint16_t>()[i * 3 + j]);
  for (const FileTensor& t : file->tensors())
    EXPECT_EQ(
        reinterpret_cast<uintptr_t>(t.bytes.data()) % (t.dtype == DType::kU8 ? 1 : dtype_bytes(*t.dtype)), 0u)
        << t.name;
}

TEST(WriteSafetensors, writes_through_what_is_no_regular_file_and_leaves_it_in_place) {
  const testing::TempFolder folder;
  const Tensor a = make(DType::kF32, {2}, 1);
  const NamedView view{"a", a.view()};
  const std::filesystem::path target = folder.write("target", "old"), link = folder.path() / "link",
                              device = folder.path() / "device";
  std::filesystem::create_symlink(target, link);
  std::filesystem::create_symlink("/dev/full", device);
  EXPECT_TRUE(write_safetensors(link, std::span(&view, 1)).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(SafetensorsFile::open(target).ok());
  EXPECT_EQ(write_safetensors(device, std::span(&view, 1)).error().code, ErrorCode::kIo);
  EXPECT_TRUE(std::filesystem::is_symlink(device));
}

TEST(WriteSafetensors, leaves_nothing_behind_when_it_fails) {
  testing::TempFolder folder;
  const Tensor a = make(DType::kU8, {3}, 1);
  const NamedView twice[] = {{"a", a.view()}, {"a", a.view()}};
  EXPECT_EQ(write_safetensors(folder / "x", twice).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(write_safetensors(folder / "no" / "x", std::span(twice, 1)).error().code, ErrorCode::kIo);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace latent::io
