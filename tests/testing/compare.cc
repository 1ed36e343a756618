// SPDX-License-Identifier: Apache-2.0
#include "testing/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <span>

#include "tensor/convert.h"
#include "testing/elements.h"

namespace latent::testing {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

const void* address(const TensorView& view, const Index& index) {
  int64_t offset = 0;
  for (int axis = 0; axis < view.rank(); ++axis)
    offset += index[static_cast<size_t>(axis)] * view.stride(axis);
  return static_cast<const std::byte*>(view.raw()) + offset * static_cast<int64_t>(dtype_bytes(view.dtype()));
}

double read(const TensorView& view, const Index& index) {
  return element_to_float(address(view, index), view.dtype(), 0);
}

std::string at(const TensorView& view, const Index& index) {
  return fmt::format("[{}]", fmt::join(std::span(index).first(static_cast<size_t>(view.rank())), ", "));
}

AssertionResult same_shape(const TensorView& got, const TensorView& want) {
  if (got.shape() == want.shape()) return AssertionSuccess();
  return AssertionFailure() << to_string(got) << " against " << to_string(want);
}

struct Worst {
  double excess = -1;
  Index index{};
  void see(double value, const Index& where) {
    if (value <= excess) return;
    excess = value;
    index = where;
  }
};

}  // namespace

AssertionResult is_close(const TensorView& got, const TensorView& want, double bound, uint64_t seed) {
  if (AssertionResult r = same_shape(got, want); !r) return r;
  double error = 0, norm = 0;
  Worst worst;
  std::string non_finite;
  for_each_element(got, [&](const Index& index, const void*) {
    const double g = read(got, index), w = read(want, index);
    if (!std::isfinite(g) && std::isfinite(w) && non_finite.empty()) non_finite = at(got, index);
    if (!std::isfinite(w)) return;
    worst.see(std::abs(g - w), index);
    error += (g - w) * (g - w);
    norm += w * w;
  });
  if (!non_finite.empty()) return AssertionFailure() << "not finite at " << non_finite << ", seed " << seed;
  const double relative = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
  if (relative <= bound) return AssertionSuccess();
  return AssertionFailure() << fmt::format(
             "relative error {:.3g}, bound {:.3g}; worst at {}: {} for {}; seed {}", relative, bound,
             at(got, worst.index), read(got, worst.index), read(want, worst.index), seed);
}

AssertionResult is_within(const TensorView& got, const TensorView& want, const TensorView& bound,
                          uint64_t seed) {
  if (AssertionResult r = same_shape(got, want); !r) return r;
  if (AssertionResult r = same_shape(got, bound); !r) return r;
  Worst worst;
  bool fits = true;
  for_each_element(got, [&](const Index& index, const void*) {
    const double error = std::abs(read(got, index) - read(want, index)), limit = read(bound, index);
    if (error <= limit) return;  // false for NaN
    fits = false;
    worst.see(std::isfinite(error) ? error - limit : INFINITY, index);
  });
  if (fits) return AssertionSuccess();
  return AssertionFailure() << fmt::format("worst at {}: {} for {}, bound {:.3g}; seed {}",
                                           at(got, worst.index), read(got, worst.index),
                                           read(want, worst.index), read(bound, worst.index), seed);
}

AssertionResult same_bits(const TensorView& got, const TensorView& want) {
  if (AssertionResult r = same_shape(got, want); !r) return r;
  if (got.dtype() != want.dtype())
    return AssertionFailure() << to_string(got) << " against " << to_string(want);
  std::string first;
  for_each_element(got, [&](const Index& index, const void* element) {
    if (!first.empty() || std::memcmp(element, address(want, index), dtype_bytes(got.dtype())) == 0) return;
    first = fmt::format("bits differ first at {}: {} for {}", at(got, index), read(got, index),
                        read(want, index));
  });
  if (first.empty()) return AssertionSuccess();
  return AssertionFailure() << first;
}

AssertionResult all_finite(const TensorView& view) {
  std::string first;
  for_each_element(view, [&](const Index& index, const void*) {
    if (first.empty() && !std::isfinite(read(view, index))) first = at(view, index);
  });
  if (first.empty()) return AssertionSuccess();
  return AssertionFailure() << "not finite at " << first;
}

}  // namespace latent::testing
