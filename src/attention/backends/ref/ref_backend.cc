// SPDX-License-Identifier: Apache-2.0
// For each request the latents are read from the cache into fp64; each head then gets its keys and values
// (absorbed: the latents themselves; multi-head: their up-projection), and each row is one plain softmax.
#include "attention/backends/ref/ref_backend.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/desc.h"
#include "base/check.h"
#include "kernels/kv_row.h"
#include "tensor/convert.h"
#include "tensor/float_types.h"

namespace latent::attention {
namespace {

using ops::MlaAttentionAttrs;
using ops::MlaAttentionParams;

// fp64 rows carved from the workspace, or only counted, without one.
struct Scratch {
  double* latents;      // [kv_len, kv_rank + rope_dim]
  double* keys;         // [kv_len, nope_dim + rope_dim]; multi-head only
  double* values;       // [kv_len, v_dim]; multi-head only
  double* scores;       // [kv_len]
  double* query;        // [q_width + rope_dim]
  double* out;          // [out_width]
  double* weight_row;   // [kv_rank]; multi-head only
  int64_t num_doubles;  // in all
};

Scratch carve(const MlaAttentionAttrs& a, int64_t kv_len, double* base) {
  Scratch s{};
  const auto take = [&](int64_t count) {
    double* at = base == nullptr ? nullptr : base + s.num_doubles;
    s.num_doubles += count;
    return at;
  };
  const bool up_projects = !is_absorbed(a);
  s.latents = take(kv_len * (a.kv_rank + a.rope_dim));
  s.keys = take(up_projects ? kv_len * (a.nope_dim + a.rope_dim) : 0);
  s.values = take(up_projects ? kv_len * a.v_dim : 0);
  s.scores = take(kv_len);
  s.query = take(q_width(a) + a.rope_dim);
  s.out = take(out_width(a));
  s.weight_row = take(up_projects ? a.kv_rank : 0);
  return s;
}

void read(const TensorView& view, int64_t offset, int64_t stride, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = element_to_float(view.raw(), view.dtype(), offset + i * stride);
}

double dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

void read_latents(const MlaAttentionParams& p, int64_t seq, int64_t kv_len, double* latents) {
  const TensorView& table = p.batch.block_table;
  const ops::KvLayout layout = kv_layout(p.attrs, p.cache.dtype());
  const int64_t width = p.attrs.kv_rank + p.attrs.rope_dim;
  for (int64_t j = 0; j < kv_len; ++j) {
    const int64_t column = j / p.attrs.page_tokens;
    const int64_t page = table.data<int32_t>()[seq * table.stride(0) + column * table.stride(1)];
    CHECK(page >= 0 && page < p.cache.dim(0), "page {} of {} pages holds token {} of request {}", page,
          p.cache.dim(0), j, seq);
    const int64_t row = j % p.attrs.page_tokens;
    const int64_t at = page * p.cache.stride(0) + row * p.cache.stride(1);
    if (layout.format() == ops::KvFormat::kWide)
      read(p.cache, at, p.cache.stride(2), width, latents + j * width);
    else
      for (int i = 0; i < width; ++i)
        latents[j * width + i] =
            kernels::kv_element(layout, static_cast<const std::byte*>(p.cache.raw()) + at, p.cache_scale, i);
  }
}

void read_weight_row(const ops::WeightView& w, int64_t row, double* to) {
  read(w.values, row * w.values.stride(0), w.values.stride(1), w.cols(), to);
  if (w.scales.empty()) return;
  for (int64_t k = 0; k < w.cols(); ++k)
    to[k] *=
        w.scales
            .data<float>()[row / w.block_rows * w.scales.stride(0) + k / w.block_cols * w.scales.stride(1)];
}

// keys = [W_UK . latent | k_pe], values = W_UV . latent of one head.
void up_project(const MlaAttentionParams& p, int64_t head, int64_t kv_len, const Scratch& s) {
  const MlaAttentionAttrs& a = p.attrs;
  const int64_t width = a.kv_rank + a.rope_dim, key_width = a.nope_dim + a.rope_dim;
  for (int64_t n = 0; n < a.nope_dim + a.v_dim; ++n) {
    read_weight_row(p.kv_b, head * (a.nope_dim + a.v_dim) + n, s.weight_row);
    for (int64_t j = 0; j < kv_len; ++j) {
      const double x = dot(s.weight_row, s.latents + j * width, a.kv_rank);
      if (n < a.nope_dim)
        s.keys[j * key_width + n] = x;
      else
        s.values[j * a.v_dim + n - a.nope_dim] = x;
    }
  }
  for (int64_t j = 0; j < kv_len; ++j)
    std::copy_n(s.latents + j * width + a.kv_rank, a.rope_dim, s.keys + j * key_width + a.nope_dim);
}

void write_row(const MlaAttentionParams& p, int64_t token, int64_t head, const double* out, double lse) {
  const TensorView& o = p.out;
  for (int64_t i = 0; i < o.dim(2); ++i) {
    const int64_t at = token * o.stride(0) + head * o.stride(1) + i * o.stride(2);
    const auto value = static_cast<float>(out[i]);
    if (o.dtype() == DType::kF32)
      store_float(o.data<float>() + at, value);
    else if (o.dtype() == DType::kF16)
      store_float(o.data<Float16>() + at, value);
    else
      store_float(o.data<BFloat16>() + at, value);
  }
  if (!p.lse.empty())
    p.lse.data<float>()[token * p.lse.stride(0) + head * p.lse.stride(1)] = static_cast<float>(lse);
}

// One row over its first `num_keys` keys. The values of the absorbed form are the keys' leading columns.
void attend(const MlaAttentionParams& p, int64_t token, int64_t head, int64_t num_keys, const Scratch& s) {
  const MlaAttentionAttrs& a = p.attrs;
  const int64_t width = q_width(a) + a.rope_dim;
  const double* keys = is_absorbed(a) ? s.latents : s.keys;
  const double* values = is_absorbed(a) ? s.latents : s.values;
  const int64_t value_stride = is_absorbed(a) ? width : a.v_dim;
  read(p.q_nope, token * p.q_nope.stride(0) + head * p.q_nope.stride(1), p.q_nope.stride(2), q_width(a),
       s.query);
  read(p.q_pe, token * p.q_pe.stride(0) + head * p.q_pe.stride(1), p.q_pe.stride(2), a.rope_dim,
       s.query + q_width(a));
  std::fill_n(s.out, out_width(a), 0.0);
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t j = 0; j < num_keys; ++j) {
    s.scores[j] = double{a.softmax_scale} * dot(s.query, keys + j * width, width);
    largest = std::max(largest, s.scores[j]);
  }
  for (int64_t j = 0; j < num_keys; ++j) {
    const double weight = std::exp(s.scores[j] - largest);
    sum += weight;
    for (int64_t i = 0; i < out_width(a); ++i) s.out[i] += weight * values[j * value_stride + i];
  }
  for (int64_t i = 0; i < out_width(a) && num_keys > 0; ++i) s.out[i] /= sum;
  write_row(p, token, head, s.out, largest + std::log(sum));
}

void run_request(const MlaAttentionParams& p, int64_t seq, Range rows, int64_t kv_len, const Scratch& s) {
  read_latents(p, seq, kv_len, s.latents);
  for (int64_t head = 0; head < p.attrs.num_heads; ++head) {
    if (!is_absorbed(p.attrs)) up_project(p, head, kv_len, s);
    for (int64_t t = rows.begin; t < rows.end; ++t)
      attend(p, t, head, std::max<int64_t>(0, kv_len - rows.end + t + 1), s);
  }
}

class RefBackend final : public Backend {
 public:
  const char* name() const override { return "ref"; }

  std::optional<Refusal> supports(const MlaDesc& desc) const override {
    if (const auto refusal = refuse_malformed(desc)) return refusal;
    return refuse_device_memory(desc);
  }

  size_t workspace_bytes(const MlaDesc& desc, const Limits& limits) const override {
    return static_cast<size_t>(carve(desc.attrs, limits.max_kv_len, nullptr).num_doubles) * sizeof(double);
  }
  void reserve_plan(const MlaDesc&, const Limits&, Plan*) const override {}
  void plan(const MlaDesc&, const Limits&, const SeqLengths&, Plan*) const override {}

  void run(const MlaAttentionParams& p, const Plan&, const kernels::KernelContext& context) const override {
    auto* base = reinterpret_cast<double*>(context.workspace.data());
    for (int64_t seq = 0; seq < num_seqs(p.batch); ++seq) {
      const int64_t len = kv_len(p.batch, seq);
      const Scratch scratch = carve(p.attrs, len, base);
      CHECK(static_cast<size_t>(scratch.num_doubles) * sizeof(double) <= context.workspace.size(),
            "{} keys do not fit a workspace of {} bytes", len, context.workspace.size());
      run_request(p, seq, query_rows(p.batch, seq), len, scratch);
    }
    const Scratch scratch = carve(p.attrs, 0, base);
    for (int64_t t = num_live_rows(p.batch); t < p.out.dim(0); ++t)
      for (int64_t head = 0; head < p.attrs.num_heads; ++head) attend(p, t, head, 0, scratch);
  }
};

}  // namespace

const Backend& ref_backend() {
  static const RefBackend backend;
  return backend;
}

}  // namespace latent::attention
