// SPDX-License-Identifier: Apache-2.0
// One attention problem of the conformance suite: logical inputs drawn from a seed, and a run of a backend on
// one way of laying them out in memory. Layouts differ in everything that must not matter: which pages hold
// the tokens, strides, what unused memory holds, padding, threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "testing/random.h"

namespace latent::conformance {

struct Request {
  int q_len;
  int kv_len;  // this step's tokens included
};

struct Case {
  ops::MlaAttentionAttrs attrs;
  DType q_dtype = DType::kBF16, cache_dtype = DType::kBF16, kv_b_dtype = DType::kBF16,
        out_dtype = DType::kBF16;
  std::vector<Request> requests;
  float cache_scale = 1;  // of an f8_e4m3 cache
  // Largest expected |logit|; queries are scaled to it.
  float logit_scale = 3;
  testing::Values q_values = testing::Values::kNormal, cache_values = testing::Values::kNormal;
  uint64_t seed = 1;

  int num_rows() const;
  attention::MlaDesc desc(bool on_device = false) const;
};

std::string to_string(const Case& c);

// What must not matter.
struct Layout {
  uint64_t seed = 1;  // page permutation, padding
  PoisonPattern poison = PoisonPattern::kNan;
  int padded_rows = 0;
  int padded_requests = 0;  // without rows or keys
  int spare_columns = 1;    // of the block table, holding INT_MAX
  bool strided = false;     // pages, tokens and heads lie further apart than they need
  int unused_pages = 0;     // in front of those that hold tokens
  bool with_lse = true;
  int num_threads = 2;
  bool deterministic = false;
  int launches = 1;  // on one plan and one workspace, as the layers of a step are; the last one counts
  bool exact_lengths = true;  // else the host knows only an upper bound of the kv_lens (device memory)
};

// The inputs without pages: f32 or narrower, as the layouts will hold them.
struct Inputs {
  explicit Inputs(const Case& c);

  Case problem;
  Tensor q_nope, q_pe;          // [num_rows, num_heads, ..]
  std::vector<Tensor> latents;  // rows of the cache, a request each: [kv_len, width]
  testing::Weights kv_b;
};

struct Outputs {
  Tensor out;  // [num_rows + padded_rows, num_heads, out_width], contiguous
  Tensor lse;  // [num_rows + padded_rows, num_heads]; without memory if not asked for
};

// Whether a backend reads device memory. The suite's problems are made in host memory; such a backend gets
// them copied, with their strides and with what unused memory holds.
bool lives_on_device(const attention::Backend& backend);

Outputs run(const attention::Backend& backend, const Inputs& inputs, const Layout& layout);

// Runs only request `index` of the inputs, or only its query rows [first, last).
Inputs only_request(const Inputs& inputs, int index);
Inputs only_rows(const Inputs& inputs, int index, int first, int last);

}  // namespace latent::conformance
