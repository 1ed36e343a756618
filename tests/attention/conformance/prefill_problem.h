// SPDX-License-Identifier: Apache-2.0
// One prompt problem of the conformance suite: logical inputs drawn from a seed, a run of a backend on one
// way of laying them out in memory, and the truth about it in fp64.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attention/prefill.h"
#include "testing/random.h"

namespace latent::conformance {

struct PrefillRequest {
  int q_len, kv_len;
};

struct PrefillCase {
  ops::PrefillAttentionAttrs attrs;
  DType dtype = DType::kBF16, out_dtype = DType::kBF16;
  std::vector<PrefillRequest> requests;
  // Largest expected |logit|; queries are scaled to it.
  float logit_scale = 3;
  testing::Values q_values = testing::Values::kNormal, kv_values = testing::Values::kNormal;
  uint64_t seed = 1;

  int num_rows() const;
  int num_keys() const;
  attention::PrefillDesc desc(bool on_device) const;
};

std::string to_string(const PrefillCase& c);

// What must not matter.
struct PrefillLayout {
  PoisonPattern poison = PoisonPattern::kNan;
  int padded_rows = 0, padded_keys = 0;
  int padded_requests = 0;  // without rows or keys
  bool strided = false;     // heads and tokens lie further apart than they need
  bool shared_rope = true;  // one rope key for all heads, or a copy for each
  bool with_lse = true;
  int launches = 1;  // that share a state; the last one counts
};

struct PrefillInputs {
  explicit PrefillInputs(const PrefillCase& c);

  PrefillCase problem;
  Tensor q_nope, q_pe;     // [num_rows, num_heads, .]
  Tensor k_nope, k_pe, v;  // [num_keys, num_heads, .], k_pe [num_keys, 1, .]
};

struct PrefillOutputs {
  Tensor out;  // [num_rows + padded_rows, num_heads, v_dim], contiguous
  Tensor lse;  // [num_rows + padded_rows, num_heads]; without memory if not asked for
};

// Whether a backend reads device memory; it then gets copies of what lies in host memory.
bool lives_on_device(const attention::PrefillBackend& backend);

PrefillOutputs run(const attention::PrefillBackend& backend, const PrefillInputs& inputs,
                   const PrefillLayout& layout);

// With D = (4 sqrt(nope + rope) + 4) u32 M as for decode (oracle.h) and A = sum p |v|, an output is wrong by
// at most
//     u_out |out| + s_out + u_p (1 + u_p) A + s_p sum |v| / sum e + (2 D + (4 sqrt(keys) + 8) u32) A.
// A, not sum p |v - out|: a backend that rounds its weights may divide by the sum of those it did not round.
struct PrefillTruth {
  std::vector<double> out, out_bound, lse, lse_bound;
  double max_logit = 0;
};
PrefillTruth find_truth(const PrefillInputs& inputs, double unit_roundoff_of_weights);

double weight_roundoff(const attention::PrefillBackend& backend, const PrefillCase& c);

// Live rows within the bounds, padded rows exactly zero with LSE -inf.
::testing::AssertionResult is_right(const PrefillOutputs& got, const PrefillTruth& truth,
                                    const PrefillInputs& inputs);

// ||got - truth|| / ||truth|| over the live rows.
double frobenius_error(const PrefillOutputs& got, const PrefillTruth& truth);

}  // namespace latent::conformance
