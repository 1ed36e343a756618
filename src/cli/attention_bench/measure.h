// SPDX-License-Identifier: Apache-2.0
// Times attention backends on the same inputs, in turns, under one protocol.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/attention_bench/inputs.h"

namespace latent::cli {

enum class Protocol {
  kBurst,      // a rested machine: 12 calls back to back, median of calls 2 to 12, median of 3 repeats
  kWarm,       // passes over the input sets, 20 ms before and 80 ms measured, two rounds
  kSustained,  // the same for 1.5 s and 1.5 s
};
std::optional<Protocol> parse_protocol(std::string_view name);
const char* to_string(Protocol protocol);

// A backend with what it needs for the steps of one case.
class Contestant {
 public:
  static Result<Contestant> create(Machine& machine, const InputSets& inputs,
                                   const attention::Backend& backend, int num_threads);

  const char* name() const { return backend_->name(); }
  // Median seconds of making the plan of a step.
  double plan_seconds() const { return plan_seconds_; }
  BenchCall call(const InputSets& inputs) const;

 private:
  const attention::Backend* backend_ = nullptr;
  int num_threads_ = 1;
  double plan_seconds_ = 0;
  std::shared_ptr<std::byte> workspace_;
  size_t workspace_bytes_ = 0;
  attention::Plan plan_;
};

struct Timing {
  double seconds = 0;          // of one call: the median of the rounds
  double least = 0, most = 0;  // of the rounds
  double joules = 0;           // of one call; 0 where nobody counts
};

// One result a contestant's call. Rounds go forth and back over them; a pass is over `num_sets` input sets.
std::vector<Timing> measure(Machine& machine, const std::vector<BenchCall>& calls, int num_sets,
                            Protocol protocol);

// ||a - b|| / ||b|| of the outputs that contestants a and b write for set 0 into memory that held NaN; the
// LSE counts as one more column. NaN if an element was not written.
double difference(Machine& machine, const InputSets& inputs, const Contestant& a, const Contestant& b);

double median(std::vector<double> values);

}  // namespace latent::cli
