// SPDX-License-Identifier: Apache-2.0
#include "testing/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/math.h"
#include "tensor/convert.h"
#include "testing/elements.h"

namespace latent::testing {
namespace {

Tensor make_tensor(DType dtype, const Shape& shape, PoisonPattern pattern) {
  Result<Tensor> tensor = Tensor::create(dtype, shape, pattern);
  CHECK(tensor.ok(), "{}", tensor.error().message);
  return *std::move(tensor);
}

}  // namespace

uint64_t test_seed(uint64_t salt) {
  const auto round = static_cast<uint64_t>(::testing::UnitTest::GetInstance()->random_seed());
  return 20261130 + 1000003 * round + salt;
}

float Random::draw(Values values) {
  switch (values) {
    case Values::kNormal:
      return normal();
    case Values::kUniform:
      return uniform(-1, 1);
    case Values::kOutliers:
      return normal() * (integer(0, 63) == 0 ? 1e4f : 1.0f);
    case Values::kZeros:
      return 0;
    case Values::kTies:
      return static_cast<float>(integer(-2, 2));
  }
  return 0;
}

void Random::fill(const TensorView& view, Values values, float scale) {
  for_each_element(view, [&](const Index&, void* element) {
    const float value = scale * draw(values);
    convert_elements(&value, DType::kF32, element, view.dtype(), 1);
  });
}

void Random::fill_ids(const TensorView& view, int64_t low, int64_t high) {
  CHECK(view.dtype() == DType::kI32, "ids are i32, not {}", to_string(view.dtype()));
  for_each_element(view, [&](const Index&, void* element) {
    *static_cast<int32_t*>(element) = static_cast<int32_t>(integer(low, high));
  });
}

Tensor Random::tensor(DType dtype, const Shape& shape, Values values, float scale) {
  Tensor t = make_tensor(dtype, shape, PoisonPattern::kNan);
  fill(t.view(), values, scale);
  return t;
}

Tensor Random::ids(const Shape& shape, int64_t low, int64_t high) {
  Tensor t = make_tensor(DType::kI32, shape, PoisonPattern::kNan);
  fill_ids(t.view(), low, high);
  return t;
}

Tensor Random::distinct_ids(int64_t num_rows, int64_t num_choices, int64_t num_ids) {
  Tensor t = make_tensor(DType::kI32, {num_rows, num_choices}, PoisonPattern::kNan);
  std::vector<int32_t> all(static_cast<size_t>(num_ids));
  std::iota(all.begin(), all.end(), 0);
  for (int64_t row = 0; row < num_rows; ++row) {
    std::shuffle(all.begin(), all.end(), engine_);
    std::copy_n(all.begin(), num_choices, t.view().row<int32_t>(row));
  }
  return t;
}

Weights::Weights(Random& random, DType dtype, const Shape& shape, Values values, int block_rows,
                 int block_cols) {
  const int rank = shape.rank();
  const bool quantised = dtype == DType::kF8E4M3;
  const float scale = 1.0f / std::sqrt(static_cast<float>(std::max<int64_t>(shape[rank - 1], 1)));
  values_ = random.tensor(dtype, shape, values, quantised ? 16.0f : scale);
  view_.values = values_.view();
  if (!quantised) return;
  Shape blocks = shape;
  blocks[rank - 2] = ceil_div<int64_t>(shape[rank - 2], block_rows);
  blocks[rank - 1] = ceil_div<int64_t>(shape[rank - 1], block_cols);
  scales_ = make_tensor(DType::kF32, blocks, PoisonPattern::kNan);
  for_each_element(scales_.view(), [&](const Index&, void* element) {
    *static_cast<float*>(element) = scale / 16.0f * std::exp2(random.uniform(-1, 1));
  });
  view_.scales = scales_.view();
  view_.block_rows = block_rows;
  view_.block_cols = block_cols;
}

PaddedTensor padded(DType dtype, const Shape& shape, int64_t padding, PoisonPattern pattern) {
  Shape wide = shape;
  wide[shape.rank() - 1] += padding;
  PaddedTensor p{.storage = make_tensor(dtype, wide, pattern), .view = {}};
  p.view = p.storage.view().slice(shape.rank() - 1, 0, shape[shape.rank() - 1]);
  return p;
}

}  // namespace latent::testing
