// SPDX-License-Identifier: Apache-2.0
// Where the time of a run went, and how near to the machine's memory it came.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "runtime/engine.h"

namespace latent::cli {

struct Timings {
  double load_seconds = 0;
  runtime::RequestStats stats;
  int64_t bytes_per_token = 0;  // weights and cache that a generated token reads, on average

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
