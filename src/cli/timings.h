// SPDX-License-Identifier: Apache-2.0
// Where the time and memory of a run went, and how near to the machine's bandwidth it came.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "runtime/engine.h"

namespace latent::cli {

// Bytes held: the whole process at its peak, and what the model must have.
struct MemoryUse {
  int64_t peak = 0;     // 0 where the system does not tell
  int64_t weights = 0;  // as loaded
  int64_t folded = 0;   // made of them at load: what the absorbed form reads
  int64_t cache = 0;
  int64_t intermediates = 0;  // of both graphs
};

MemoryUse memory_use(const runtime::Engine& engine);
std::string memory_text(const MemoryUse& memory);
nlohmann::json memory_json(const MemoryUse& memory);

struct Timings {
  double load_seconds = 0;
  runtime::RequestStats stats;
  int64_t bytes_per_token = 0;  // weights and cache that a generated token reads, on average
  MemoryUse memory;

  // A plain read of the same weights, measured around the run.
  struct Ceiling {
    double bytes_per_second = 0;
    const char* form = "";
    int num_forms = 0;
    size_t num_bytes = 0;
  };
  std::optional<Ceiling> ceiling = {};

  double prefill_tokens_per_second() const;
  // Of the tokens after the first, which prefill gives. 0 if there are none.
  double decode_tokens_per_second() const;
  double decode_bytes_per_second() const;
  // Of the ceiling; above 1 the measurement is wrong, and print_timings says so.
  std::optional<double> share() const;
};

int64_t bytes_per_token(const runtime::Engine& engine, const runtime::RequestStats& stats);

void print_timings(const Timings& timings);  // to stderr
nlohmann::json timings_json(const Timings& timings);

// Measures the ceiling over the engine's weights: construct before the run, finish() after it.
class CeilingProbe {
 public:
  explicit CeilingProbe(const runtime::Engine& engine);
  ~CeilingProbe();
  CeilingProbe(const CeilingProbe&) = delete;
  CeilingProbe& operator=(const CeilingProbe&) = delete;
  Timings::Ceiling finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace latent::cli
