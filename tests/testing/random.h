// SPDX-License-Identifier: Apache-2.0
// The only source of numbers in tests: seeded distributions. Nothing a test reads was left unwritten, and a
// failure can be repeated from the seed that it prints.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

#include "ops/linear.h"
#include "tensor/tensor.h"

namespace latent::testing {

// A seed for this run: fixed, but another for each round of --gtest_shuffle --gtest_random_seed=N. `salt`
// tells the cases of one test apart.
uint64_t test_seed(uint64_t salt = 0);

enum class Values {
  kNormal,    // N(0, 1)
  kUniform,   // [-1, 1)
  kOutliers,  // N(0, 1), about one element in 64 times 1e4
  kZeros,
  kTies,  // small integers, many of them equal
};

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed), engine_(seed) {}

  uint64_t seed() const { return seed_; }
  float normal() { return std::normal_distribution<float>()(engine_); }
  float uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(engine_); }
  // In [low, high], both included.
  int64_t integer(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  float draw(Values values);

  // Writes every element of a float view of any strides, times `scale`, rounded to its dtype.
  void fill(const TensorView& view, Values values = Values::kNormal, float scale = 1.0f);
  // Integers in [low, high] for an i32 view.
  void fill_ids(const TensorView& view, int64_t low, int64_t high);

  Tensor tensor(DType dtype, const Shape& shape, Values values = Values::kNormal, float scale = 1.0f);
  Tensor ids(const Shape& shape, int64_t low, int64_t high);
  // num_choices distinct ids of [0, num_ids) in each of num_rows rows, as a router gives them.
  Tensor distinct_ids(int64_t num_rows, int64_t num_choices, int64_t num_ids);

 private:
  uint64_t seed_;
  std::mt19937_64 engine_;
};

// One of the values, each as likely.
template <class T>
T one_of(Random& random, std::initializer_list<T> values) {
  return values.begin()[random.integer(0, static_cast<int64_t>(values.size()) - 1)];
}

// A weight that owns its memory, drawn from a distribution whose scale keeps the outputs of order one
// (1 / sqrt(cols)). f8_e4m3 gets random block scales within a factor of four of each other.
class Weights {
 public:
  // `shape` is [rows, cols] or [num, rows, cols].
  Weights(Random& random, DType dtype, const Shape& shape, Values values = Values::kNormal,
          int block_rows = 128, int block_cols = 128);

  const ops::WeightView& view() const { return view_; }

 private:
  Tensor values_, scales_;
  ops::WeightView view_;
};

// A view of `shape` whose rows lie `padding` elements further apart than they need, in memory of its own that
// holds `pattern` (the padding keeps it; the elements do until somebody writes them).
struct PaddedTensor {
  Tensor storage;
  TensorView view;
};
PaddedTensor padded(DType dtype, const Shape& shape, int64_t padding,
                    PoisonPattern pattern = PoisonPattern::kNan);

}  // namespace latent::testing
