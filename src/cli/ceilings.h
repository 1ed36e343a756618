// SPDX-License-Identifier: Apache-2.0
// What this machine's memory can do, measured beside what it is compared with: a plain read of the same
// bytes, the best of at least six loop forms. A share quoted against it is of the same run and the same level
// of the memory hierarchy.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace latent::cli {

using ByteRegion = std::span<const std::byte>;

struct ReadForm {
  const char* name;  // "avx512, 1 stream, 8 accumulators"
  // The exclusive or of the 64-bit words of [begin, end), both 64-byte aligned.
  unsigned long long (*read)(const std::byte* begin, const std::byte* end);
};

// The forms that this processor runs; at least six.
std::vector<ReadForm> read_forms();

// Reads regions again and again; keeps the best rate of each form.
class ReadCeiling {
 public:
  // Reads up to `max_bytes` of the regions, whole cache lines. The regions must outlive the object.
  ReadCeiling(std::vector<ByteRegion> regions, size_t max_bytes, int num_threads);

  // One pass with every form.
  void measure();
  // One pass with the best form so far; its rate in bytes per second.
  double measure_best();
  // Passes until about `seconds` have gone, at least two.
  void measure_for(double seconds);

  int num_forms() const { return static_cast<int>(forms_.size()); }
  size_t num_bytes() const { return num_bytes_; }
  double best_bytes_per_second() const;
  const char* best_form() const;

 private:
  size_t best_index() const;
  double measure_form(size_t form);

  std::vector<ByteRegion> regions_;
  size_t num_bytes_ = 0;
  int num_threads_;
  std::vector<ReadForm> forms_;
  std::vector<double> best_;  // bytes per second, one a form
};

}  // namespace latent::cli
