// SPDX-License-Identifier: Apache-2.0
#include "attention/conformance/prefill_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#ifdef LATENT_CUDA
#include "attention/backends/cuda/device_copies.h"
#endif
#include "attention/conformance/oracle.h"
#include "base/check.h"
#include "tensor/convert.h"
#include "tensor/float_types.h"
#include "testing/poison.h"

namespace latent::conformance {
namespace {

using testing::padded;
using testing::PaddedTensor;
using testing::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double subnormal_half_step(DType dtype) { return dtype == DType::kF16 ? 0x1p-25 : 0; }

Tensor must(Result<Tensor> tensor) {
  CHECK(tensor.ok(), "{}", tensor.error().message);
  return *std::move(tensor);
}

Tensor copy_of(const TensorView& view) {
  Tensor tensor = must(Tensor::create(view.dtype(), view.shape(), PoisonPattern::kNone));
  copy_elements(view, tensor.view());
  return tensor;
}

Tensor starts_of(const PrefillCase& c, int padded_requests, int PrefillRequest::*length,
                 PoisonPattern poison) {
  const auto live = static_cast<int64_t>(c.requests.size());
  Tensor starts = must(Tensor::create(DType::kI32, {live + padded_requests + 1}, poison));
  int32_t start = 0;
  for (int64_t s = 0; s <= live + padded_requests; ++s) {
    starts.data<int32_t>()[s] = start;
    if (s < live) start += c.requests[static_cast<size_t>(s)].*length;
  }
  return starts;
}

// Memory of one run: everything a backend sees. Queries are one tensor of nope and rope columns, keys and
// values another, as the projections leave them.
struct Memory {
  PaddedTensor q, kv, k_pe, out, lse;
  Tensor q_starts, kv_starts;
  ops::PrefillAttentionParams params;
};

PaddedTensor rows(DType dtype, int64_t count, int64_t heads, int64_t width, const PrefillLayout& layout) {
  if (!layout.strided) return padded(dtype, {count, heads, width}, 0, layout.poison);
  PaddedTensor wide = padded(dtype, {count, heads + 1, width + 8}, 16, layout.poison);
  wide.view = wide.view.slice(1, 0, heads).slice(2, 0, width);
  return wide;
}

void copy_rows(const TensorView& from, const TensorView& to) {
  if (from.num_elements() > 0) copy_elements(from, to.slice(0, 0, from.dim(0)));
}

TensorView over_heads(const TensorView& one, int64_t heads) {
  return {one.raw(), one.dtype(), {one.dim(0), heads, one.dim(2)}, {one.stride(0), 0, one.stride(2)}};
}

Memory lay_out(const PrefillInputs& in, const PrefillLayout& layout) {
  const PrefillCase& c = in.problem;
  const ops::PrefillAttentionAttrs& a = c.attrs;
  const int64_t num_rows = c.num_rows() + layout.padded_rows, num_keys = c.num_keys() + layout.padded_keys;
  Memory m;
  m.q = rows(c.dtype, num_rows, a.num_heads, a.nope_dim + a.rope_dim, layout);
  m.kv = rows(c.dtype, num_keys, a.num_heads, a.nope_dim + a.v_dim, layout);
  m.k_pe = rows(c.dtype, num_keys, layout.shared_rope ? 1 : a.num_heads, a.rope_dim, layout);
  m.out = rows(c.out_dtype, num_rows, a.num_heads, a.v_dim, layout);
  m.lse = padded(DType::kF32, {num_rows, a.num_heads}, layout.strided ? 3 : 0, layout.poison);
  m.q_starts = starts_of(c, layout.padded_requests, &PrefillRequest::q_len, layout.poison);
  m.kv_starts = starts_of(c, layout.padded_requests, &PrefillRequest::kv_len, layout.poison);
  const auto columns = [](const PaddedTensor& t, int64_t begin, int64_t end) {
    return t.view.slice(2, begin, end);
  };
  m.params = {.q_nope = columns(m.q, 0, a.nope_dim),
              .q_pe = columns(m.q, a.nope_dim, a.nope_dim + a.rope_dim),
              .k_nope = columns(m.kv, 0, a.nope_dim),
              .k_pe = layout.shared_rope ? over_heads(m.k_pe.view, a.num_heads) : m.k_pe.view,
              .v = columns(m.kv, a.nope_dim, a.nope_dim + a.v_dim),
              .q_starts = m.q_starts.view(),
              .kv_starts = m.kv_starts.view(),
              .out = m.out.view,
              .lse = layout.with_lse ? m.lse.view : TensorView(),
              .attrs = a};
  copy_rows(in.q_nope.view(), m.params.q_nope);
  copy_rows(in.q_pe.view(), m.params.q_pe);
  copy_rows(in.k_nope.view(), m.params.k_nope);
  copy_rows(in.v.view(), m.params.v);
  for (int64_t head = 0; head < m.k_pe.view.dim(1); ++head)
    copy_rows(in.k_pe.view(), m.k_pe.view.slice(1, head, head + 1));
  return m;
}

#ifdef LATENT_CUDA
void run_on_device(const attention::PrefillBackend& backend, const ops::PrefillAttentionParams& p,
                   const PrefillLayout& layout) {
  using testing::DeviceCopies;
  ops::PrefillAttentionParams device = p;
  TensorView* const operands[] = {&device.q_nope,    &device.q_pe, &device.k_nope,
                                  &device.k_pe,      &device.v,    &device.q_starts,
                                  &device.kv_starts, &device.out,  &device.lse};
  size_t bytes = 0;
  for (const TensorView* view : operands) bytes += DeviceCopies::room_for(testing::extent_bytes(*view));
  DeviceCopies copies(bytes, layout.poison);
  for (TensorView* view : operands) *view = copies.upload(*view);
  const std::shared_ptr<void> state = backend.create_state();
  for (int i = 0; i < layout.launches; ++i) backend.run(device, state.get(), {});
  CUDA_CHECK(cudaDeviceSynchronize());
  testing::download(device.out, p.out);
  testing::download(device.lse, p.lse);
}
#endif

// [rows, heads, width] in fp64.
struct Wide {
  explicit Wide(const Tensor& tensor) : heads(tensor.shape()[1]), width(tensor.shape()[2]) {
    for (int64_t i = 0; i < tensor.shape().num_elements(); ++i)
      values.push_back(element_to_float(tensor.view().raw(), tensor.dtype(), i));
  }
  const double* row(int64_t row, int64_t head) const {
    return values.data() + (row * heads + std::min(head, heads - 1)) * width;
  }
  int64_t heads, width;
  std::vector<double> values;
};

// fp64 on one row.
class RowSolver {
 public:
  RowSolver(const PrefillInputs& in, double weight_roundoff, PrefillTruth* truth)
      : in_(in),
        a_(in.problem.attrs),
        q_nope_(in.q_nope),
        q_pe_(in.q_pe),
        k_nope_(in.k_nope),
        k_pe_(in.k_pe),
        v_(in.v),
        u_weights_(weight_roundoff),
        truth_(*truth) {}

  void solve(int64_t row, int64_t head, int64_t first_key, int64_t num_keys) {
    const double u32 = unit_roundoff(DType::kF32), u_out = unit_roundoff(in_.problem.out_dtype);
    std::vector<double> weights;
    double largest = -kInfinity, magnitude = 0;
    for (int64_t j = 0; j < num_keys; ++j) weights.push_back(logit(row, head, first_key + j, &magnitude));
    for (const double x : weights) largest = std::max(largest, x);
    double sum = 0;
    for (double& x : weights) sum += x = std::exp(x - largest);
    const double logit_error = (4 * std::sqrt(a_.nope_dim + a_.rope_dim) + 4) * u32 * magnitude;
    const double relative = 2 * logit_error + (4 * std::sqrt(static_cast<double>(num_keys)) + 8) * u32;
    const double s_weights = u_weights_ > 0 ? subnormal_half_step(in_.problem.dtype) : 0;
    const auto index = static_cast<size_t>(row * a_.num_heads + head);
    const auto width = static_cast<size_t>(a_.v_dim);
    std::vector<double> out(width), absolute(width), plain(width);
    for (int64_t j = 0; j < num_keys; ++j) {
      const double* v = v_.row(first_key + j, head);
      const double p = weights[static_cast<size_t>(j)] / sum;
      for (size_t i = 0; i < width; ++i) {
        out[i] += p * v[i];
        absolute[i] += p * std::abs(v[i]);
        plain[i] += std::abs(v[i]) / sum;
      }
    }
    for (size_t i = 0; i < width; ++i) {
      const double rounding = u_out * std::abs(out[i]) + subnormal_half_step(in_.problem.out_dtype) +
                              u_weights_ * (1 + u_weights_) * absolute[i] + s_weights * plain[i];
      truth_.out[index * width + i] = out[i];
      truth_.out_bound[index * width + i] = rounding * (1 + 1e-3) + relative * absolute[i] + 1e-30;
    }
    truth_.lse[index] = largest + std::log(sum);
    truth_.lse_bound[index] = 1e-5 + logit_error + u32 * std::abs(truth_.lse[index]);
    truth_.max_logit = std::max(truth_.max_logit, magnitude);
  }

 private:
  // And the largest of it and of the root of its squared terms.
  double logit(int64_t row, int64_t head, int64_t key, double* magnitude) const {
    double sum = 0, squares = 0;
    const auto add = [&](const Wide& q, const Wide& k) {
      const double *a = q.row(row, head), *b = k.row(key, head);
      for (int64_t i = 0; i < q.width; ++i) {
        sum += a[i] * b[i];
        squares += a[i] * b[i] * a[i] * b[i];
      }
    };
    add(q_nope_, k_nope_);
    add(q_pe_, k_pe_);
    const double scale = a_.softmax_scale;
    *magnitude = std::max({*magnitude, scale * std::abs(sum), scale * std::sqrt(squares)});
    return scale * sum;
  }

  const PrefillInputs& in_;
  const ops::PrefillAttentionAttrs& a_;
  Wide q_nope_, q_pe_, k_nope_, k_pe_, v_;
  double u_weights_;
  PrefillTruth& truth_;
};

}  // namespace

int PrefillCase::num_rows() const {
  int sum = 0;
  for (const PrefillRequest& r : requests) sum += r.q_len;
  return sum;
}
int PrefillCase::num_keys() const {
  int sum = 0;
  for (const PrefillRequest& r : requests) sum += r.kv_len;
  return sum;
}

attention::PrefillDesc PrefillCase::desc(bool on_device) const {
  return {.attrs = attrs, .dtype = dtype, .out_dtype = out_dtype, .on_device = on_device};
}

std::string to_string(const PrefillCase& c) {
  std::string text =
      fmt::format("heads {} nope {} rope {} v {} {} {} to {} seed {}:", c.attrs.num_heads, c.attrs.nope_dim,
                  c.attrs.rope_dim, c.attrs.v_dim, c.attrs.causal ? "causal" : "full",
                  latent::to_string(c.dtype), latent::to_string(c.out_dtype), c.seed);
  for (const PrefillRequest& r : c.requests) text += fmt::format(" {}/{}", r.q_len, r.kv_len);
  return text;
}

PrefillInputs::PrefillInputs(const PrefillCase& c) : problem(c) {
  Random random(c.seed);
  const ops::PrefillAttentionAttrs& a = c.attrs;
  // As of the decode problems: the largest of a thousand logits is about 3.3 deviations.
  const double width = a.nope_dim + a.rope_dim;
  const auto q_scale = static_cast<float>(c.logit_scale / (3.3 * a.softmax_scale * std::sqrt(width)));
  q_nope = random.tensor(c.dtype, {c.num_rows(), a.num_heads, a.nope_dim}, c.q_values, q_scale);
  q_pe = random.tensor(c.dtype, {c.num_rows(), a.num_heads, a.rope_dim}, c.q_values, q_scale);
  k_nope = random.tensor(c.dtype, {c.num_keys(), a.num_heads, a.nope_dim}, c.kv_values);
  k_pe = random.tensor(c.dtype, {c.num_keys(), 1, a.rope_dim}, c.kv_values);
  v = random.tensor(c.dtype, {c.num_keys(), a.num_heads, a.v_dim}, c.kv_values);
}

bool lives_on_device(const attention::PrefillBackend& backend) {
  return std::string_view(backend.name()).starts_with("cuda");
}

PrefillOutputs run(const attention::PrefillBackend& backend, const PrefillInputs& inputs,
                   const PrefillLayout& layout) {
  const Memory m = lay_out(inputs, layout);
  const Status valid = check(m.params);
  CHECK(valid.ok(), "{}", valid.error().message);
#ifdef LATENT_CUDA
  if (lives_on_device(backend))
    run_on_device(backend, m.params, layout);
  else
#endif
    for (int i = 0; i < layout.launches; ++i)
      backend.run(m.params, backend.create_state().get(), {.num_threads = 1});
  PrefillOutputs outputs{.out = copy_of(m.out.view), .lse = {}};
  if (layout.with_lse) outputs.lse = copy_of(m.lse.view);
  return outputs;
}

PrefillTruth find_truth(const PrefillInputs& in, double weight_roundoff) {
  const PrefillCase& c = in.problem;
  PrefillTruth truth;
  truth.lse.resize(static_cast<size_t>(c.num_rows() * c.attrs.num_heads));
  truth.out.resize(truth.lse.size() * static_cast<size_t>(c.attrs.v_dim));
  truth.lse_bound = truth.lse;
  truth.out_bound = truth.out;
  RowSolver solver(in, weight_roundoff, &truth);
  int first_row = 0, first_key = 0;
  for (const PrefillRequest& r : c.requests) {
    for (int t = 0; t < r.q_len; ++t)
      for (int head = 0; head < c.attrs.num_heads; ++head)
        solver.solve(first_row + t, head, first_key,
                     c.attrs.causal ? std::max(0, r.kv_len - (r.q_len - 1 - t)) : r.kv_len);
    first_row += r.q_len;
    first_key += r.kv_len;
  }
  return truth;
}

double weight_roundoff(const attention::PrefillBackend& backend, const PrefillCase& c) {
  return lives_on_device(backend) ? unit_roundoff(c.dtype) : 0;
}

::testing::AssertionResult is_right(const PrefillOutputs& got, const PrefillTruth& truth,
                                    const PrefillInputs& in) {
  const int64_t heads = got.out.shape()[1], width = got.out.shape()[2], live = in.problem.num_rows();
  double worst = 0;
  std::string message;
  const auto see = [&](double g, double want, double bound, int64_t index, int64_t columns,
                       const char* what) {
    const double excess = g == want ? 0 : std::isfinite(g) ? std::abs(g - want) / bound : kInfinity;
    if (excess <= 1 || excess <= worst) return;
    worst = excess;
    message = fmt::format("{} of row {} head {} column {} is {}, not {} +- {}", what, index / columns / heads,
                          index / columns % heads, index % columns, g, want, bound);
  };
  for (int64_t i = 0; i < got.out.shape().num_elements(); ++i) {
    const bool is_live = i < live * heads * width;
    const auto place = static_cast<size_t>(i);
    see(element_to_float(got.out.view().raw(), got.out.dtype(), i), is_live ? truth.out[place] : 0.0,
        is_live ? truth.out_bound[place] : 0.0, i, width, "out");
  }
  for (int64_t i = 0; !got.lse.view().empty() && i < got.lse.shape().num_elements(); ++i) {
    const bool is_live = i < live * heads;
    const auto place = static_cast<size_t>(i);
    see(got.lse.data<float>()[i], is_live ? truth.lse[place] : -kInfinity,
        is_live ? truth.lse_bound[place] : 0.0, i, 1, "lse");
  }
  if (message.empty()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << to_string(in.problem) << ": " << message << ", " << worst << " times the bound";
}

double frobenius_error(const PrefillOutputs& got, const PrefillTruth& truth) {
  return frobenius_error(got.out, truth.out);
}

}  // namespace latent::conformance
