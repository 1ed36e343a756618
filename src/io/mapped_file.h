// SPDX-License-Identifier: Apache-2.0
// MappedFile: a file's bytes, read-only, paged in by the system as they are touched. The file must not shrink
// while it is mapped.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>

#include "base/result.h"

namespace latent::io {

class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { std::swap(bytes_, other.bytes_); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  // kNotFound, kIo, or kInvalidArgument for what is no regular file. An empty file maps to no bytes.
  static Result<MappedFile> open(const std::filesystem::path& path);

  std::span<const std::byte> bytes() const { return bytes_; }
  // Tells the system that `part` of bytes() will not be read again soon; whole pages inside it leave memory.
  void drop(std::span<const std::byte> part) const;

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace latent::io
