// SPDX-License-Identifier: Apache-2.0
// Where the operands of the attention bench live and how calls on them are timed: the processor, or a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace latent::cli {

// Starts call number `index` (its input set is index modulo their number); on a GPU it only enqueues on
// `stream`, a cudaStream_t.
using BenchCall = std::function<void(int64_t index, void* stream)>;

// How long, in seconds, calls run before and while they are measured.
struct BenchWindow {
  double warm_up = 0;
  double measured = 0;
};

struct Replays {
  std::vector<double> seconds;  // of one call: the mean of each pass over the input sets
  double joules = 0;            // of one call, the whole board; 0 where nobody counts
};

class Machine {
 public:
  virtual ~Machine() = default;
  virtual std::string name() const = 0;
  virtual bool is_device() const = 0;
  virtual size_t cache_bytes() const = 0;   // last level
  virtual size_t memory_bytes() const = 0;  // free
  // What matrix products reach at best in bf16, flops a second; 0 if nobody measured it on this machine.
  virtual double product_rate() const = 0;

  virtual Result<std::shared_ptr<std::byte>> allocate(size_t num_bytes) = 0;
  // bf16 N(0, 1).
  virtual void fill_normal(std::byte* data, int64_t count, uint64_t seed) = 0;
  virtual void copy_in(std::byte* to, const void* from, size_t num_bytes) = 0;
  virtual void copy_out(void* to, const std::byte* from, size_t num_bytes) = 0;

  // `count` calls back to back after a fifth of a second of rest; seconds of each.
  virtual std::vector<double> burst(const BenchCall& call, int64_t first, int count) = 0;
  // Passes over the calls [0, num_calls), as one captured graph where there are graphs; at least 12 measured.
  virtual Replays replay(const BenchCall& call, int num_calls, const BenchWindow& window) = 0;
  // A plain read of the pages, in an order that no prefetcher knows; bytes a second, the best of a few forms.
  virtual double read_rate(const std::byte* pages, int64_t num_pages, int64_t page_bytes) = 0;
};

std::unique_ptr<Machine> host_machine(int num_threads);
// The current GPU; null where there is none or the build knows none.
std::unique_ptr<Machine> device_machine();

}  // namespace latent::cli
