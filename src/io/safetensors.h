// SPDX-License-Identifier: Apache-2.0
// The safetensors format: 8 bytes of header length, a JSON header, the tensors' bytes back to back.
// Everything the header says is checked against the file before anyone reads or allocates by it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/mapped_file.h"
#include "tensor/tensor_view.h"

namespace latent::io {

// One tensor of a file. `bytes` live as long as the file object and may be unaligned.
struct FileTensor {
  std::string name;
  std::string dtype_name;      // as the header says, e.g. "BF16"
  std::optional<DType> dtype;  // nullopt: a legal type that we do not read
  std::vector<int64_t> dims;   // may be empty (a scalar) or hold zeros
  std::span<const std::byte> bytes;
};

class SafetensorsFile {
 public:
  static constexpr int64_t kMaxHeaderBytes = 100'000'000;

  // kCorrupt, with the file's name and what is wrong, unless: the header fits the file and is valid JSON
  // without duplicate keys; every tensor has a known dtype, non-negative extents whose product is its size;
  // the tensors, sorted by offset, cover the data exactly, without gap, overlap or trailing bytes.
  static Result<SafetensorsFile> open(const std::filesystem::path& path);
  // The same for bytes in memory, which must outlive the object; `name` is for messages.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, const std::string& name);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<FileTensor>& tensors() const { return tensors_; }  // sorted by name
  const FileTensor* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // See MappedFile::drop.
  void drop(std::span<const std::byte> part) const { file_.drop(part); }

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::vector<FileTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

// All tensors of a model folder: one safetensors file, or the shards that model.safetensors.index.json names.
class Checkpoint {
 public:
  struct Entry {
    const FileTensor* tensor;
    const SafetensorsFile* file;
  };

  // With an index, the index is an allow-list: every shard it names must exist inside the folder, every
  // tensor it assigns must be in its shard, and what it does not assign is ignored and listed in stale().
  // Without an index it is model.safetensors, or else the only *.safetensors file of the folder.
  static Result<Checkpoint> open(const std::filesystem::path& folder);

  const std::map<std::string, Entry, std::less<>>& tensors() const { return tensors_; }
  const Entry* find(std::string_view name) const;
  // "file: tensor" for tensors of a shard that the index does not assign to it, and files it does not name.
  const std::vector<std::string>& stale() const { return stale_; }
  int num_files() const { return static_cast<int>(files_.size()); }

 private:
  static Result<Checkpoint> open_sharded(const std::filesystem::path& folder,
                                         const std::filesystem::path& index);
  static Result<Checkpoint> open_single(const std::filesystem::path& folder);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Entry, std::less<>> tensors_;
  std::vector<std::string> stale_;
};

// The first three names and how many more there are, for messages.
std::string list_some(const std::vector<std::string>& names);

struct NamedView {
  std::string name;
  TensorView view;  // any strides
};

// Writes a file that any safetensors reader accepts; replaces `path` only once it is whole. Tensors are
// ordered by descending element size, then name, so that each is aligned.
Status write_safetensors(const std::filesystem::path& path, std::span<const NamedView> tensors,
                         const std::map<std::string, std::string>& metadata = {});

}  // namespace latent::io
