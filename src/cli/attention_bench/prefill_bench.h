// SPDX-License-Identifier: Apache-2.0
// The prompts that the attention bench times: causal, queries and keys of nope + rope columns, values as a
// strided half of the projection's output, one rope key for all heads, bf16, N(0, 1).
#pragma once

#include <string>
#include <vector>

#include "attention/prefill.h"
#include "cli/attention_bench/measure.h"

namespace latent::cli {

struct PrefillBenchCase {
  int heads = 128;
  int nope = 128, rope = 64, v = 128;
  int batch = 1;
  int len = 4096;   // new tokens of a request
  int context = 0;  // tokens before them, whose keys are there, too
};

std::string to_string(const PrefillBenchCase& c);

// Products as the causal mask leaves them (half the square of the new tokens); every operand read once and
// the outputs written once.
BenchWork work_of(const PrefillBenchCase& c);

// The cases by which the GPU backends are judged.
std::vector<PrefillBenchCase> judged_prefill_cases();

struct PrefillBenchRow {
  PrefillBenchCase problem;
  std::string backend;
  Protocol protocol = Protocol::kBurst;
  Timing timing;
  double difference = 0;  // to the first backend's output; NaN if an element was not written
};

// Every backend that serves a case, in turns.
Result<std::vector<PrefillBenchRow>> bench_prefill(
    Machine& machine, const std::vector<PrefillBenchCase>& cases,
    const std::vector<const attention::PrefillBackend*>& backends, const std::vector<Protocol>& protocols);

}  // namespace latent::cli
