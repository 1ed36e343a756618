// SPDX-License-Identifier: Apache-2.0
#include "attention/conformance/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>

#include "attention/desc.h"
#include "kernels/kv_row.h"
#include "tensor/convert.h"
#include "tensor/float_types.h"

namespace latent::conformance {
namespace {

using Row = std::vector<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Row read_row(const TensorView& row) {
  Row values;
  for (int64_t i = 0; i < row.dim(0); ++i)
    values.push_back(element_to_float(row.raw(), row.dtype(), i * row.stride(0)));
  return values;
}

Row weight_row(const ops::WeightView& w, int64_t row) {
  Row values = read_row(w.values.at(row));
  if (w.scales.empty()) return values;
  const Row scales = read_row(w.scales.at(row / w.block_rows));
  for (size_t k = 0; k < values.size(); ++k) values[k] *= scales[k / static_cast<size_t>(w.block_cols)];
  return values;
}

// Row j of request s as the cache holds it.
Row latent_row(const Inputs& in, size_t s, int64_t j) {
  const Case& c = in.problem;
  const ops::KvLayout layout = attention::kv_layout(c.desc());
  const TensorView row = in.latents[s].view().at(j);
  if (layout.format() == ops::KvFormat::kWide) return read_row(row);
  Row values;
  for (int i = 0; i < layout.kv_rank + layout.rope_dim; ++i)
    values.push_back(kernels::kv_element(layout, static_cast<const std::byte*>(row.raw()), c.cache_scale, i));
  return values;
}

double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Keys and values of one head of one request, a row a token, and the size of the terms that made each
// element: an up-projection that cancels keeps the rounding errors of its terms. A value may be the beginning
// of a longer row.
struct HeadContext {
  std::span<const Row> keys, values, key_terms, value_terms;
};

double root_of_squares(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i] * a[i] * b[i];
  return std::sqrt(sum);
}

// The rows of a HeadContext in the multi-head form.
struct Projected {
  std::vector<Row> keys, values, key_terms, value_terms;
  HeadContext context() const { return {keys, values, key_terms, value_terms}; }
};

Projected project_up(const Inputs& in, int head, const std::vector<Row>& rows) {
  const ops::MlaAttentionAttrs& a = in.problem.attrs;
  std::vector<Row> weights;
  for (int n = 0; n < a.nope_dim + a.v_dim; ++n)
    weights.push_back(weight_row(in.kv_b.view(), int64_t{head} * (a.nope_dim + a.v_dim) + n));
  Projected p;
  for (const Row& row : rows) {
    const Row latent(row.begin(), row.begin() + a.kv_rank), rope(row.begin() + a.kv_rank, row.end());
    const auto split = [&](const Row& up, std::vector<Row>* keys, std::vector<Row>* values) {
      values->emplace_back(up.begin() + a.nope_dim, up.end());
      keys->emplace_back(up.begin(), up.begin() + a.nope_dim);
      keys->back().insert(keys->back().end(), rope.begin(), rope.end());
    };
    Row up, terms;
    for (const Row& w : weights) {
      up.push_back(dot(w, latent));
      terms.push_back(std::max(std::abs(up.back()), root_of_squares(w, latent)));
    }
    split(up, &p.keys, &p.values);
    split(terms, &p.key_terms, &p.value_terms);
  }
  return p;
}

// What weights that multiply codes are lifted by before they are rounded to f16.
constexpr double kCodeWeightLift = 0x1p14;

// Half the distance of a type's subnormal numbers; those of f32 and bf16 lie below anything that is tested.
double subnormal_half_step(DType dtype) { return dtype == DType::kF16 ? 0x1p-25 : 0; }

class RowSolver {
 public:
  RowSolver(const Inputs& in, double weight_roundoff)
      : a_(in.problem.attrs),
        u_out_(unit_roundoff(in.problem.out_dtype)),
        s_out_(subnormal_half_step(in.problem.out_dtype)),
        u_weights_(weight_roundoff),
        format_(attention::kv_layout(in.problem.desc()).format()) {
    if (weight_roundoff > 0)
      s_weights_ = format_ == ops::KvFormat::kWide ? subnormal_half_step(in.problem.q_dtype)
                                                   : subnormal_half_step(DType::kF16) / kCodeWeightLift;
    const double up_terms = attention::is_absorbed(a_) ? 0 : std::sqrt(a_.kv_rank);
    c_ = 4 * (std::sqrt(attention::q_width(a_) + a_.rope_dim) + up_terms) + 4;
    up_ = 4 * up_terms + 8;
  }

  // Appends one row's outputs and bounds.
  void solve(const Row& query, const HeadContext& context, size_t num_keys, Truth* truth) const {
    const double u32 = unit_roundoff(DType::kF32);
    Row logits;
    double largest = -kInfinity, magnitude = 0;
    for (size_t j = 0; j < num_keys; ++j) {
      logits.push_back(double{a_.softmax_scale} * dot(query, context.keys[j]));
      largest = std::max(largest, logits.back());
      magnitude = std::max({magnitude, std::abs(logits.back()),
                            double{a_.softmax_scale} * root_of_squares(query, context.key_terms[j])});
    }
    double sum = 0;
    for (double& x : logits) sum += x = std::exp(x - largest);
    const double logit_error = c_ * u32 * magnitude;
    const double relative = 2 * logit_error + (4 * std::sqrt(static_cast<double>(num_keys)) + up_) * u32;
    // Key by key along the rows of the values.
    const auto width = static_cast<size_t>(attention::out_width(a_));
    Row out(width), absolute(width), spread(width), plain_spread(width);
    for (size_t j = 0; j < num_keys; ++j)
      for (size_t i = 0; i < width; ++i) out[i] += logits[j] / sum * context.values[j][i];
    for (size_t j = 0; j < num_keys; ++j)
      for (size_t i = 0; i < width; ++i) {
        absolute[i] += logits[j] / sum * std::abs(context.value_terms[j][i]);
        spread[i] += logits[j] / sum * std::abs(context.values[j][i] - out[i]);
        plain_spread[i] += std::abs(context.values[j][i] - out[i]) / sum;
      }
    const bool blocks = format_ == ops::KvFormat::kFp8Blocks;
    if (blocks) {
      double largest_value = 0;
      for (const Row& value : context.values)
        for (size_t i = 0; i < width; ++i) largest_value = std::max(largest_value, std::abs(value[i]));
      spread = absolute;
      std::fill(plain_spread.begin(), plain_spread.end(),
                static_cast<double>(num_keys) * largest_value / sum);
    }
    for (size_t i = 0; i < width; ++i) {
      const double rounding = u_out_ * std::abs(out[i]) + s_out_ + u_weights_ * (1 + u_weights_) * spread[i] +
                              s_weights_ * plain_spread[i];
      truth->out.push_back(out[i]);
      truth->out_bound.push_back(rounding * (1 + 1e-3) + relative * absolute[i] + 1e-30);
    }
    truth->lse.push_back(largest + std::log(sum));
    truth->lse_bound.push_back(1e-5 + logit_error + u32 * std::abs(truth->lse.back()));
    truth->max_logit = std::max(truth->max_logit, magnitude);
  }

 private:
  const ops::MlaAttentionAttrs& a_;
  double u_out_, s_out_, u_weights_, s_weights_ = 0, c_, up_;
  ops::KvFormat format_;
};

// Rows come out head by head within a request; this puts row t, head h of width w in its place.
void scatter(const Truth& from, int64_t first_row, int64_t rows, int64_t heads, int64_t width, Truth* to) {
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t t = 0; t < rows; ++t) {
      const int64_t source = h * rows + t, target = (first_row + t) * heads + h;
      to->lse[static_cast<size_t>(target)] = from.lse[static_cast<size_t>(source)];
      to->lse_bound[static_cast<size_t>(target)] = from.lse_bound[static_cast<size_t>(source)];
      std::copy_n(from.out.begin() + source * width, width, to->out.begin() + target * width);
      std::copy_n(from.out_bound.begin() + source * width, width, to->out_bound.begin() + target * width);
    }
}

}  // namespace

Truth find_truth(const Inputs& in, double weight_roundoff) {
  const Case& c = in.problem;
  const ops::MlaAttentionAttrs& a = c.attrs;
  const RowSolver solver(in, weight_roundoff);
  const int64_t width = attention::out_width(a), num_rows = c.num_rows();
  Truth all;
  all.out.resize(static_cast<size_t>(num_rows * a.num_heads * width));
  all.lse.resize(static_cast<size_t>(num_rows * a.num_heads));
  all.out_bound = all.out;
  all.lse_bound = all.lse;
  int64_t first_row = 0;
  for (size_t s = 0; s < c.requests.size(); first_row += c.requests[s++].q_len) {
    std::vector<Row> rows;
    for (int64_t j = 0; j < c.requests[s].kv_len; ++j) rows.push_back(latent_row(in, s, j));
    Truth mine;
    for (int h = 0; h < a.num_heads; ++h) {
      const Projected projected = attention::is_absorbed(a) ? Projected() : project_up(in, h, rows);
      const HeadContext context =
          attention::is_absorbed(a) ? HeadContext{rows, rows, rows, rows} : projected.context();
      for (int t = 0; t < c.requests[s].q_len; ++t) {
        Row query = read_row(in.q_nope.view().at(first_row + t).at(h));
        const Row rope = read_row(in.q_pe.view().at(first_row + t).at(h));
        query.insert(query.end(), rope.begin(), rope.end());
        const int num_keys = std::max(0, c.requests[s].kv_len - c.requests[s].q_len + t + 1);
        solver.solve(query, context, static_cast<size_t>(num_keys), &mine);
      }
    }
    scatter(mine, first_row, c.requests[s].q_len, a.num_heads, width, &all);
    all.max_logit = std::max(all.max_logit, mine.max_logit);
  }
  return all;
}

double weight_roundoff(const attention::Backend& backend, const Case& c) {
  const std::string_view name = backend.name();
  if (name == "ref" || c.q_dtype == DType::kF32) return 0;
  if (name == "cpu" && (c.attrs.form == ops::AttentionForm::kMultiHead || c.cache_dtype != DType::kBF16))
    return 0;
  // Kernels on a device multiply codes in f16.
  const bool codes = attention::kv_layout(c.desc()).format() != ops::KvFormat::kWide;
  return unit_roundoff(codes ? DType::kF16 : c.q_dtype);
}

::testing::AssertionResult is_right(const Outputs& got, const Truth& truth, const Inputs& in) {
  const int64_t heads = got.out.shape()[1], width = got.out.shape()[2], live = in.problem.num_rows();
  double worst = 0;
  std::string message;
  const auto see = [&](double g, double want, double bound, int64_t index, const char* what,
                       int64_t per_row) {
    const bool same = g == want;  // both -inf, too
    const double excess = same ? 0 : std::isfinite(g) ? std::abs(g - want) / bound : kInfinity;
    if (excess <= 1 || excess <= worst) return;
    worst = excess;
    message = fmt::format("{} of row {} head {} column {} is {}, not {} +- {}", what, index / per_row,
                          index % per_row / (per_row / heads), index % (per_row / heads), g, want, bound);
  };
  for (int64_t i = 0; i < got.out.shape().num_elements(); ++i) {
    const bool is_live = i < live * heads * width;
    const auto at = static_cast<size_t>(i);
    see(element_to_float(got.out.view().raw(), got.out.dtype(), i), is_live ? truth.out[at] : 0.0,
        is_live ? truth.out_bound[at] : 0.0, i, "out", heads * width);
  }
  for (int64_t i = 0; !got.lse.view().empty() && i < got.lse.shape().num_elements(); ++i) {
    const bool is_live = i < live * heads;
    const auto at = static_cast<size_t>(i);
    see(got.lse.data<float>()[i], is_live ? truth.lse[at] : -kInfinity, is_live ? truth.lse_bound[at] : 0.0,
        i, "lse", heads);
  }
  if (message.empty()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << to_string(in.problem) << ": " << message << ", " << worst << " times the bound";
}

double frobenius_error(const Outputs& got, const Truth& truth) { return frobenius_error(got.out, truth.out); }

double frobenius_error(const Tensor& got, std::span<const double> truth) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double g = element_to_float(got.view().raw(), got.dtype(), static_cast<int64_t>(i));
    error += std::pow(g - truth[i], 2);
    norm += std::pow(truth[i], 2);
  }
  return norm == 0 ? std::sqrt(error) : std::sqrt(error / norm);
}

}  // namespace latent::conformance
