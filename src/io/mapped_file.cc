// SPDX-License-Identifier: Apache-2.0
#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/math.h"

namespace latent::io {
namespace {

// Closes a descriptor on every way out.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) {
    const int why = errno;
    return make_error(why == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot open {}: {}",
                      path.string(), std::strerror(why));
  }
  struct stat info {};
  if (fstat(file.fd, &info) != 0)
    return make_error(ErrorCode::kIo, "cannot read the size of {}: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(info.st_mode))
    return make_error(ErrorCode::kInvalidArgument, "{} is not a regular file", path.string());
  MappedFile mapped;
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return mapped;
  void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (memory == MAP_FAILED)
    return make_error(ErrorCode::kIo, "cannot map {} ({} bytes): {}", path.string(), size,
                      std::strerror(errno));
  mapped.bytes_ = {static_cast<const std::byte*>(memory), size};
  return mapped;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::drop(std::span<const std::byte> part) const {
  if (part.empty() || bytes_.empty()) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = round_up(reinterpret_cast<uintptr_t>(part.data()), page);
  const auto end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace latent::io
