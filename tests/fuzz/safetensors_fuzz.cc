// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: an error or tensors that lie inside the bytes.
#include <cstdint>
#include <cstdlib>

#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = latent::io::SafetensorsFile::parse(bytes, "fuzz");
  if (!file) return 0;
  size_t total = 0;
  for (const latent::io::FileTensor& t : file->tensors()) {
    if (!t.bytes.empty() &&
        (t.bytes.data() < bytes.data() || t.bytes.data() + t.bytes.size() > bytes.data() + size))
      std::abort();
    total += t.bytes.size();
  }
  if (total > size) std::abort();
  return 0;
}
