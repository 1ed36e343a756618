// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/ref/element.h"
#include "kernels/ref/matrix.h"

namespace latent::kernels::ref {
namespace {

double silu(double x) { return x / (1 + std::exp(-x)); }

// sum += weight * down . (silu(gate . x) * (up . x)) for one token and one expert.
template <class X, class W>
void add_expert(const ops::MoeExpertsParams& p, int64_t token, int64_t expert, double weight,
                std::span<double> inner, std::span<double> sum) {
  const X* x = p.x.row<X>(token);
  const ops::WeightView gate = p.gate.at(expert), up = p.up.at(expert), down = p.down.at(expert);
  for (int64_t i = 0; i < gate.rows(); ++i) {
    const double g = dot(x, p.x.stride(1), WeightRow<W>(gate, i), gate.cols());
    inner[static_cast<size_t>(i)] = silu(g) * dot(x, p.x.stride(1), WeightRow<W>(up, i), up.cols());
  }
  for (int64_t n = 0; n < down.rows(); ++n) {
    const WeightRow<W> row(down, n);
    double y = 0;
    for (int64_t i = 0; i < down.cols(); ++i) y += inner[static_cast<size_t>(i)] * row[i];
    sum[static_cast<size_t>(n)] += weight * y;
  }
}

template <class X, class W>
void one_token(const ops::MoeExpertsParams& p, int64_t t, std::span<double> inner, std::span<double> sum) {
  std::fill(sum.begin(), sum.end(), 0.0);
  for (int64_t j = 0; j < p.ids.dim(1); ++j) {
    const int64_t expert = int64_t{p.ids.row<int32_t>(t)[j * p.ids.stride(1)]} - p.attrs.first_expert;
    if (expert < 0 || expert >= p.gate.values.dim(0)) continue;
    add_expert<X, W>(p, t, expert, p.weights.row<float>(t)[j * p.weights.stride(1)], inner, sum);
  }
}

template <class X, class W>
void all_tokens(const ops::MoeExpertsParams& p, std::span<double> scratch) {
  const auto inter = static_cast<size_t>(p.gate.rows()), hidden = static_cast<size_t>(p.down.rows());
  const std::span<double> inner = scratch.first(inter), sum = scratch.subspan(inter, hidden);
  for (int64_t t = 0; t < p.x.dim(0); ++t) {
    one_token<X, W>(p, t, inner, sum);
    with_float_type(p.out.dtype(), [&](auto out0) {
      auto* out = p.out.row<decltype(out0)>(t);
      for (size_t n = 0; n < hidden; ++n)
        store_float(out + static_cast<int64_t>(n) * p.out.stride(1), static_cast<float>(sum[n]));
    });
  }
}

}  // namespace

size_t moe_experts_workspace(const ops::MoeExpertsParams& p, int) {
  return static_cast<size_t>(p.gate.rows() + p.down.rows()) * sizeof(double);
}

void moe_experts(const ops::MoeExpertsParams& p, const KernelContext& context) {
  CHECK(context.workspace.size() >= moe_experts_workspace(p, 1), "moe_experts: workspace of {} bytes",
        context.workspace.size());
  const std::span<double> scratch(reinterpret_cast<double*>(context.workspace.data()),
                                  static_cast<size_t>(p.gate.rows() + p.down.rows()));
  with_float_type(p.x.dtype(), [&](auto x0) {
    with_float_type(p.gate.values.dtype(),
                    [&](auto w0) { all_tokens<decltype(x0), decltype(w0)>(p, scratch); });
  });
}

}  // namespace latent::kernels::ref
