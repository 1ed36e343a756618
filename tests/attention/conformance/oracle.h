// SPDX-License-Identifier: Apache-2.0
// The truth about an attention problem, in fp64 on the logical inputs, and how far from it a backend may be.
//
// With u the unit roundoff of a type, M the largest |logit| of a row (or the root of the sum of squared terms
// of one, if that is larger: a logit may be small by cancellation), n the number of terms of a logit and r
// that of an up-projection (0 in the absorbed form), a logit is wrong by at most
//     D = c u32 M,  c = 4 (sqrt(n) + sqrt(r)) + 4       (seven deviations of a random walk of n roundings)
// and, with p the softmax weights, A = sum p |v| and B = sum p |v - out|, an output by at most
//     u_out |out| + s_out + u_p B + s_p C + (2 D + (4 sqrt(keys) + 4 sqrt(r) + 8) u32) A
// where u_p is that of the weights if the backend rounds them. s is half the distance of a type's subnormal
// numbers, which is what rounding loses below its smallest normal one (2^-14 in f16); a backend rounds
// weights that are relative to a maximum, so with e = exp(logit - largest) it loses s_p of an e, and C = sum
// |v - out| / sum e. Weights that multiply codes are f16, 2^14 times as large. Where they take the scales of
// a kFp8Blocks cache, in units of the largest, what they are rounded to no longer adds up to one, B becomes
// A, and C becomes keys * max |v| / sum e. The truth is that of the codes in the cache.
// docs/notes/20261130-cpu-attention.md derives the rest.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "attention/conformance/problem.h"

namespace latent::conformance {

struct Truth {
  // [num_rows, num_heads, out_width] and [num_rows, num_heads]
  std::vector<double> out, out_bound, lse, lse_bound;
  double max_logit = 0;
};

Truth find_truth(const Inputs& inputs, double unit_roundoff_of_weights);

// Unit roundoff of the softmax weights of a backend that rounds them, 0 of one that does not.
double weight_roundoff(const attention::Backend& backend, const Case& c);

// Live rows within the bounds, padded rows exactly zero with LSE -inf. A failure prints the case and the
// worst element.
::testing::AssertionResult is_right(const Outputs& got, const Truth& truth, const Inputs& inputs);

// ||got - truth|| / ||truth|| over the live rows.
double frobenius_error(const Outputs& got, const Truth& truth);
// The same of any outputs whose first rows are the live ones.
double frobenius_error(const Tensor& got, std::span<const double> truth);

}  // namespace latent::conformance
