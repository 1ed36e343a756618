// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "io/safetensors.h"
#include "tensor/tensor.h"
#include "testing/temp_folder.h"

namespace latent::io {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

// Writes a shard whose tensors hold one float each.
void write_shard(const std::filesystem::path& path,
                 const std::vector<std::pair<std::string, float>>& values) {
  std::vector<Tensor> tensors;
  std::vector<NamedView> views;
  for (const auto& [name, value] : values) {
    tensors.push_back(Tensor::create(DType::kF32, {1}).value());
    *tensors.back().data<float>() = value;
    views.push_back({name, tensors.back().view()});
  }
  ASSERT_TRUE(write_safetensors(path, views).ok());
}

float value_of(const Checkpoint& checkpoint, std::string_view name) {
  return *reinterpret_cast<const float*>(checkpoint.find(name)->tensor->bytes.data());
}

class CheckpointTest : public ::testing::Test {
 protected:
  // Three shards with a, b, c, and their index.
  void write_sharded() {
    write_shard(folder_ / "model-1.safetensors", {{"a", 1}});
    write_shard(folder_ / "model-2.safetensors", {{"b", 2}});
    write_shard(folder_ / "model-3.safetensors", {{"c", 3}});
    write_index(R"({"a":"model-1.safetensors","b":"model-2.safetensors","c":"model-3.safetensors"})");
  }
  void write_index(const std::string& weight_map) {
    folder_.write(kIndex, R"({"metadata":{"total_size":12},"weight_map":)" + weight_map + "}");
  }
  std::string refusal() {
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder_.path());
    return checkpoint.ok() ? "accepted" : checkpoint.error().message;
  }

  testing::TempFolder folder_;
};

#define EXPECT_REFUSED(phrase) EXPECT_NE(refusal().find(phrase), std::string::npos) << refusal()

TEST_F(CheckpointTest, opens_a_single_file_of_any_name) {
  write_shard(folder_ / "weights.safetensors", {{"a", 1}, {"b", 2}});
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), 2u);
  EXPECT_EQ(value_of(*checkpoint, "b"), 2);
}

TEST_F(CheckpointTest, opens_the_shards_that_the_index_names) {
  write_sharded();
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->num_files(), 3);
  EXPECT_EQ(value_of(*checkpoint, "c"), 3);
  EXPECT_TRUE(checkpoint->stale().empty());
}

TEST_F(CheckpointTest, names_a_shard_that_is_missing) {
  write_sharded();
  std::filesystem::remove(folder_ / "model-2.safetensors");
  EXPECT_REFUSED("model-2.safetensors");
}

TEST_F(CheckpointTest, names_a_tensor_that_its_shard_lacks) {
  write_sharded();
  write_index(R"({"a":"model-1.safetensors","x":"model-1.safetensors"})");
  EXPECT_REFUSED("x (in model-1.safetensors)");
}

TEST_F(CheckpointTest, ignores_and_reports_stale_copies_and_stray_files) {
  write_sharded();
  write_shard(folder_ / "model-1.safetensors", {{"a", 1}, {"b", -99}, {"old", 5}});
  write_shard(folder_ / "stray.safetensors", {{"c", -99}});
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(value_of(*checkpoint, "b"), 2);
  EXPECT_EQ(value_of(*checkpoint, "c"), 3);
  EXPECT_EQ(checkpoint->find("old"), nullptr);
  EXPECT_EQ(checkpoint->stale(),
            (std::vector<std::string>{"model-1.safetensors: b", "model-1.safetensors: old",
                                      "stray.safetensors: the whole file"}));
}

TEST_F(CheckpointTest, refuses_shard_names_that_leave_the_folder) {
  write_sharded();
  for (const char* name :
       {"../a.safetensors", "/etc/passwd", "x/y.safetensors", "..", "", ".hidden", "a\\\\b"}) {
    write_index(std::string(R"({"a":")") + name + "\"}");
    EXPECT_REFUSED("not the name of a file in this folder");
  }
  write_index(R"({"a":3})");
  EXPECT_REFUSED("not the name of a file in this folder");
}

TEST_F(CheckpointTest, refuses_a_broken_index) {
  write_sharded();
  folder_.write(kIndex, "{");
  EXPECT_REFUSED(kIndex);
  folder_.write(kIndex, "[]");
  EXPECT_REFUSED("weight_map");
  write_index("{}");
  EXPECT_REFUSED("weight_map");
  write_index(R"({"a":"model-1.safetensors","a":"model-2.safetensors"})");
  EXPECT_REFUSED("'a' appears twice");
}

TEST_F(CheckpointTest, refuses_several_files_without_an_index) {
  write_shard(folder_ / "one.safetensors", {{"a", 1}});
  write_shard(folder_ / "two.safetensors", {{"b", 1}});
  EXPECT_REFUSED("2 safetensors files (one.safetensors, two.safetensors)");
}

TEST_F(CheckpointTest, takes_model_safetensors_among_others_and_reports_them) {
  write_shard(folder_ / "model.safetensors", {{"a", 1}});
  write_shard(folder_ / "expected.safetensors", {{"a", -99}, {"b", 2}});
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(value_of(*checkpoint, "a"), 1);
  EXPECT_EQ(checkpoint->find("b"), nullptr);
  EXPECT_EQ(checkpoint->stale(), std::vector<std::string>{"expected.safetensors: the whole file"});
}

TEST_F(CheckpointTest, refuses_folders_without_weights) {
  EXPECT_REFUSED("holds no *.safetensors file");
  EXPECT_EQ(Checkpoint::open(folder_ / "none").error().code, ErrorCode::kNotFound);
}

TEST_F(CheckpointTest, names_the_shard_that_is_corrupt) {
  write_sharded();
  folder_.write("model-3.safetensors", "short");
  EXPECT_REFUSED("model-3.safetensors: 5 bytes are too few");
}

}  // namespace
}  // namespace latent::io
