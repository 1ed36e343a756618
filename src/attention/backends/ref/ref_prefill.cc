// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/ref/ref_prefill.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/convert.h"
#include "tensor/float_types.h"

namespace latent::attention {
namespace {

using ops::PrefillAttentionParams;

double element(const TensorView& view, int64_t row, int64_t head, int64_t column) {
  return element_to_float(view.raw(), view.dtype(),
                          row * view.stride(0) + head * view.stride(1) + column * view.stride(2));
}

double dot(const TensorView& q, int64_t token, const TensorView& k, int64_t key, int64_t head) {
  double sum = 0;
  for (int64_t i = 0; i < q.dim(2); ++i) sum += element(q, token, head, i) * element(k, key, head, i);
  return sum;
}

double score(const PrefillAttentionParams& p, int64_t token, int64_t key, int64_t head) {
  return double{p.attrs.softmax_scale} *
         (dot(p.q_nope, token, p.k_nope, key, head) + dot(p.q_pe, token, p.k_pe, key, head));
}

void store(const TensorView& view, int64_t at, double value) {
  const auto x = static_cast<float>(value);
  if (view.dtype() == DType::kF32)
    store_float(view.data<float>() + at, x);
  else if (view.dtype() == DType::kF16)
    store_float(view.data<Float16>() + at, x);
  else
    store_float(view.data<BFloat16>() + at, x);
}

// One row over keys [begin, end). Scores are computed once for the maximum and again for each use: there is
// no memory to keep them in.
void attend(const PrefillAttentionParams& p, int64_t token, int64_t head, int64_t begin, int64_t end) {
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t key = begin; key < end; ++key) largest = std::max(largest, score(p, token, key, head));
  for (int64_t key = begin; key < end; ++key) sum += std::exp(score(p, token, key, head) - largest);
  constexpr int64_t kColumns = 64;
  for (int64_t first = 0; first < p.v.dim(2); first += kColumns) {
    const int64_t count = std::min(kColumns, p.v.dim(2) - first);
    double out[kColumns] = {};
    for (int64_t key = begin; key < end; ++key) {
      const double weight = std::exp(score(p, token, key, head) - largest) / sum;
      for (int64_t i = 0; i < count; ++i) out[i] += weight * element(p.v, key, head, first + i);
    }
    for (int64_t i = 0; i < count; ++i)
      store(p.out, token * p.out.stride(0) + head * p.out.stride(1) + (first + i) * p.out.stride(2), out[i]);
  }
  if (!p.lse.empty())
    p.lse.data<float>()[token * p.lse.stride(0) + head * p.lse.stride(1)] =
        static_cast<float>(largest + std::log(sum));
}

class RefPrefill final : public PrefillBackend {
 public:
  const char* name() const override { return "ref"; }

  std::optional<Refusal> supports(const PrefillDesc& desc) const override {
    if (const auto refusal = refuse_malformed(desc)) return refusal;
    if (desc.on_device) return Refusal{"reads host memory, and these operands live in device memory"};
    return std::nullopt;
  }

  void run(const PrefillAttentionParams& p, void*, const kernels::KernelContext&) const override {
    const auto* q_starts = p.q_starts.data<int32_t>();
    const auto* kv_starts = p.kv_starts.data<int32_t>();
    const int64_t num_seqs = p.q_starts.dim(0) - 1;
    for (int64_t head = 0; head < p.attrs.num_heads; ++head) {
      for (int64_t seq = 0; seq < num_seqs; ++seq)
        for (int64_t t = q_starts[seq]; t < q_starts[seq + 1]; ++t) {
          const int64_t begin = kv_starts[seq], all = kv_starts[seq + 1];
          attend(p, t, head, begin,
                 p.attrs.causal ? std::max(begin, all - (q_starts[seq + 1] - 1 - t)) : all);
        }
      for (int64_t t = q_starts[num_seqs]; t < p.out.dim(0); ++t) attend(p, t, head, 0, 0);
    }
  }
};

}  // namespace

const PrefillBackend& ref_prefill() {
  static const RefPrefill backend;
  return backend;
}

}  // namespace latent::attention
