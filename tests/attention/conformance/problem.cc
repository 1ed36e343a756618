// SPDX-License-Identifier: Apache-2.0
#include "attention/conformance/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#ifdef LATENT_CUDA
#include "attention/backends/cuda/device_run.h"
#endif
#include "attention/desc.h"
#include "base/check.h"
#include "base/math.h"
#include "kernels/kv_row.h"
#include "testing/poison.h"

namespace latent::conformance {
namespace {

using kernels::encode_kv_columns;
using testing::padded;
using testing::PaddedTensor;
using testing::Random;

Tensor must(Result<Tensor> tensor) {
  CHECK(tensor.ok(), "{}", tensor.error().message);
  return *std::move(tensor);
}

Tensor copy_of(const TensorView& view) {
  Tensor tensor = must(Tensor::create(view.dtype(), view.shape(), PoisonPattern::kNone));
  copy_elements(view, tensor.view());
  return tensor;
}

// The weight of a case does not depend on which of its requests are run.
testing::Weights draw_kv_b(const Case& c) {
  Random random(c.seed * 7919 + 17);
  const ops::MlaAttentionAttrs& a = c.attrs;
  return {random, c.kv_b_dtype, {int64_t{a.num_heads} * (a.nope_dim + a.v_dim), a.kv_rank}};
}

// Rows of the cache. Blocks of codes get scales that differ from token to token.
Tensor draw_latents(const Case& c, int kv_len, Random& random) {
  const ops::KvLayout layout = attention::kv_layout(c.desc());
  const int width = layout.kv_rank + layout.rope_dim;
  if (layout.format() == ops::KvFormat::kWide)
    return random.tensor(c.cache_dtype, {kv_len, width}, c.cache_values);
  const Tensor values = random.tensor(DType::kF32, {kv_len, width}, c.cache_values);
  Tensor rows = must(Tensor::create(c.cache_dtype, {kv_len, layout.width()}, PoisonPattern::kNan));
  for (int64_t t = 0; t < kv_len; ++t) {
    float* row = values.view().row<float>(t);
    if (layout.format() == ops::KvFormat::kFp8Blocks)
      for (int i = 0; i < layout.kv_rank; i += ops::kKvScaleColumns) {
        const float factor = random.uniform(0, 1) < 0.5f ? 1 : std::exp2(-random.uniform(0, 6));
        for (int j = 0; j < ops::kKvScaleColumns; ++j) row[i + j] *= factor;
      }
    encode_kv_columns(layout, row, 0, width, c.cache_scale, rows.data<std::byte>() + t * layout.width());
  }
  return rows;
}

// Memory of one run: everything a backend sees.
struct Memory {
  PaddedTensor q_nope, q_pe, cache, out, lse;
  Tensor q_starts, kv_lens, block_table;
  ops::MlaAttentionParams params;
};

// [rows, heads, width] with room after each head and each token; in device memory every row starts at a
// multiple of 16 bytes, which is what its kernels ask for.
PaddedTensor row_tensor(DType dtype, int64_t rows, int64_t heads, int64_t width, const Layout& layout,
                        bool aligned) {
  if (!layout.strided) return padded(dtype, {rows, heads, width}, 0, layout.poison);
  PaddedTensor wide =
      padded(dtype, {rows, heads + 1, width + (aligned ? 8 : 3)}, aligned ? 16 : 5, layout.poison);
  wide.view = wide.view.slice(1, 0, heads).slice(2, 0, width);
  return wide;
}

void copy_rows(const TensorView& from, const TensorView& to) {
  if (from.num_elements() > 0) copy_elements(from, to.slice(0, 0, from.dim(0)));
}

int pages_of(const Case& c, const Request& r) { return ceil_div(r.kv_len, c.attrs.page_tokens); }

void lay_out_batch(const Inputs& in, const Layout& layout, Memory* m) {
  const Case& c = in.problem;
  const int64_t live = static_cast<int64_t>(c.requests.size()), total = live + layout.padded_requests;
  m->q_starts = must(Tensor::create(DType::kI32, {total + 1}, layout.poison));
  m->kv_lens = must(Tensor::create(DType::kI32, {total}, layout.poison));
  int32_t start = 0;
  for (int64_t s = 0; s <= total; ++s) {
    m->q_starts.data<int32_t>()[s] = start;
    if (s < live) start += c.requests[static_cast<size_t>(s)].q_len;
    if (s < total) m->kv_lens.data<int32_t>()[s] = s < live ? c.requests[static_cast<size_t>(s)].kv_len : 0;
  }
}

// Pages in random order out of a pool with spare ones; every byte that no token owns holds the poison.
void lay_out_cache(const Inputs& in, const Layout& layout, Memory* m) {
  const Case& c = in.problem;
  int64_t used = 0, columns = 0;
  for (const Request& r : c.requests) {
    used += pages_of(c, r);
    columns = std::max<int64_t>(columns, pages_of(c, r));
  }
  const int64_t first = layout.unused_pages, num_pages = first + used + 3, page_tokens = c.attrs.page_tokens;
  const int64_t width = attention::kv_layout(c.desc()).width();
  const int64_t gap =
      48 / static_cast<int64_t>(dtype_bytes(c.cache_dtype));  // pages start at multiples of 16
  // Pages that nobody touches cost no memory.
  m->cache = padded(c.cache_dtype, {num_pages, page_tokens * width}, layout.strided ? gap : 0,
                    first > 0 ? PoisonPattern::kNone : layout.poison);
  if (first > 0) testing::poison(m->cache.view.slice(0, first, num_pages), layout.poison);
  m->cache.view = m->cache.view.reshape({num_pages, page_tokens, width});
  std::vector<int32_t> pages(static_cast<size_t>(used + 2));
  std::iota(pages.begin(), pages.end(), static_cast<int32_t>(first + 1));
  std::shuffle(pages.begin(), pages.end(), std::mt19937_64(layout.seed));

  const int64_t rows = static_cast<int64_t>(c.requests.size()) + layout.padded_requests;
  m->block_table = must(Tensor::create(DType::kI32, {rows, columns + layout.spare_columns}, layout.poison));
  testing::poison(m->block_table.view(), PoisonPattern::kNan);  // INT_MAX whatever the pattern
  size_t next = 0;
  for (size_t s = 0; s < c.requests.size(); ++s) {
    for (int token = 0; token < c.requests[s].kv_len; ++token) {
      int32_t& page = m->block_table.view().row<int32_t>(static_cast<int64_t>(s))[token / page_tokens];
      if (token % page_tokens == 0) page = pages[next++];
      copy_elements(in.latents[s].view().at(token), m->cache.view.at(page).at(token % page_tokens));
    }
  }
}

Memory lay_out(const Inputs& in, const Layout& layout, bool aligned) {
  const Case& c = in.problem;
  const int64_t rows = c.num_rows() + layout.padded_rows, heads = c.attrs.num_heads;
  Memory m;
  m.q_nope = row_tensor(c.q_dtype, rows, heads, attention::q_width(c.attrs), layout, aligned);
  m.q_pe = row_tensor(c.q_dtype, rows, heads, c.attrs.rope_dim, layout, aligned);
  m.out = row_tensor(c.out_dtype, rows, heads, attention::out_width(c.attrs), layout, aligned);
  m.lse = padded(DType::kF32, {rows, heads}, layout.strided ? 3 : 0, layout.poison);
  copy_rows(in.q_nope.view(), m.q_nope.view);
  copy_rows(in.q_pe.view(), m.q_pe.view);
  lay_out_batch(in, layout, &m);
  lay_out_cache(in, layout, &m);
  m.params = {.q_nope = m.q_nope.view,
              .q_pe = m.q_pe.view,
              .cache = m.cache.view,
              .batch = {.q_starts = m.q_starts.view(),
                        .kv_lens = m.kv_lens.view(),
                        .block_table = m.block_table.view()},
              .kv_b = in.kv_b.view(),
              .out = m.out.view,
              .lse = layout.with_lse ? m.lse.view : TensorView(),
              .attrs = c.attrs,
              .cache_scale = c.cache_scale};
  return m;
}

struct Step {
  const attention::Backend& backend;
  attention::MlaDesc desc;
  ops::MlaAttentionParams params;  // in host memory
  attention::Limits limits;
};

attention::Plan make_plan(const Step& step, const Memory& m, const Layout& layout) {
  attention::Plan plan;
  step.backend.reserve_plan(step.desc, step.limits, &plan);
  const size_t reserved = plan.words.capacity();
  const auto seqs = static_cast<size_t>(step.limits.max_seqs);
  const std::vector<int32_t> bounds(seqs, step.limits.max_kv_len);
  const std::span<const int32_t> lens(m.kv_lens.data<int32_t>(), seqs);
  step.backend.plan(step.desc, step.limits,
                    {.q_starts = {m.q_starts.data<int32_t>(), seqs + 1},
                     .kv_lens = layout.exact_lengths ? lens : std::span<const int32_t>(bounds)},
                    &plan);
  CHECK(plan.words.capacity() == reserved, "plan() allocated: {} words were reserved, {} are there", reserved,
        plan.words.capacity());
  return plan;
}

void run_in_host_memory(const Step& step, const attention::Plan& plan, const Layout& layout) {
  const size_t bytes = step.backend.workspace_bytes(step.desc, step.limits);
  Result<HostBuffer> workspace = HostBuffer::create(bytes, ElementKind::kFloat32, layout.poison);
  CHECK(workspace.ok(), "{}", workspace.error().message);
  for (int i = 0; i < layout.launches; ++i)
    step.backend.run(step.params, plan,
                     {.num_threads = layout.num_threads,
                      .deterministic = layout.deterministic,
                      .workspace = {workspace->data(), workspace->size_bytes()}});
}

void run_in_device_memory(const Step& step, const attention::Plan& plan, const Layout& layout) {
#ifdef LATENT_CUDA
  testing::run_on_device(step.backend, step.params, plan,
                         {.workspace_bytes = step.backend.workspace_bytes(step.desc, step.limits),
                          .poison = layout.poison,
                          .unused_pages = layout.unused_pages,
                          .launches = layout.launches,
                          .deterministic = layout.deterministic});
#else
  CHECK(false, "{} reads device memory in a build without CUDA", step.backend.name());
#endif
}

}  // namespace

int Case::num_rows() const {
  int rows = 0;
  for (const Request& r : requests) rows += r.q_len;
  return rows;
}

attention::MlaDesc Case::desc(bool on_device) const {
  return {.attrs = attrs,
          .q_dtype = q_dtype,
          .cache_dtype = cache_dtype,
          .kv_b_dtype = kv_b_dtype,
          .on_device = on_device};
}

std::string to_string(const Case& c) {
  const ops::MlaAttentionAttrs& a = c.attrs;
  std::string text =
      fmt::format("{} heads {} latent {}+{} nope {} v {} page {} q {} cache {} x {} kv_b {} seed {}:",
                  attention::is_absorbed(a) ? "absorbed" : "multi-head", a.num_heads, a.kv_rank, a.rope_dim,
                  a.nope_dim, a.v_dim, a.page_tokens, latent::to_string(c.q_dtype),
                  latent::to_string(c.cache_dtype), c.cache_scale, latent::to_string(c.kv_b_dtype), c.seed);
  for (const Request& r : c.requests) text += fmt::format(" {}/{}", r.q_len, r.kv_len);
  return text;
}

Inputs::Inputs(const Case& c) : problem(c), kv_b(draw_kv_b(c)) {
  Random random(c.seed);
  const ops::MlaAttentionAttrs& a = c.attrs;
  // A logit is a sum of q_width + rope_dim products of unit variance times the scale; the largest of a
  // thousand is about 3.3 deviations.
  const double width = attention::q_width(a) + a.rope_dim;
  const auto q_scale = static_cast<float>(c.logit_scale / (3.3 * a.softmax_scale * std::sqrt(width)));
  q_nope = random.tensor(c.q_dtype, {c.num_rows(), a.num_heads, attention::q_width(a)}, c.q_values, q_scale);
  q_pe = random.tensor(c.q_dtype, {c.num_rows(), a.num_heads, a.rope_dim}, c.q_values, q_scale);
  for (const Request& r : c.requests) latents.push_back(draw_latents(c, r.kv_len, random));
}

bool lives_on_device(const attention::Backend& backend) {
  const Case usual{.attrs = {.form = ops::AttentionForm::kAbsorbed,
                             .num_heads = 16,
                             .kv_rank = 512,
                             .rope_dim = 64,
                             .nope_dim = 128,
                             .v_dim = 128,
                             .page_tokens = 64,
                             .softmax_scale = 0.1f}};
  return backend.supports(usual.desc()).has_value();
}

Outputs run(const attention::Backend& backend, const Inputs& inputs, const Layout& layout) {
  const bool on_device = lives_on_device(backend);
  const Memory m = lay_out(inputs, layout, on_device);
  const Status valid = check(m.params);
  CHECK(valid.ok(), "{}", valid.error().message);
  const attention::MlaDesc desc = inputs.problem.desc(on_device);
  int32_t longest = 0;
  for (const Request& r : inputs.problem.requests) longest = std::max(longest, r.kv_len);
  const Step step{.backend = backend,
                  .desc = desc,
                  .params = m.params,
                  .limits = {.max_tokens = static_cast<int>(m.params.out.dim(0)),
                             .max_seqs = static_cast<int>(m.kv_lens.shape()[0]),
                             .max_kv_len = longest,
                             .num_threads = layout.num_threads,
                             .deterministic = layout.deterministic}};
  const attention::Plan plan = make_plan(step, m, layout);
  if (on_device)
    run_in_device_memory(step, plan, layout);
  else
    run_in_host_memory(step, plan, layout);
  Outputs outputs{.out = copy_of(m.out.view), .lse = {}};
  if (layout.with_lse) outputs.lse = copy_of(m.lse.view);
  return outputs;
}

Inputs only_rows(const Inputs& inputs, int index, int first, int last) {
  const auto i = static_cast<size_t>(index);
  Case c = inputs.problem;
  int start = first;
  for (size_t s = 0; s < i; ++s) start += c.requests[s].q_len;
  const int kv_len = c.requests[i].kv_len - (c.requests[i].q_len - last);
  c.requests = {{.q_len = last - first, .kv_len = std::max(0, kv_len)}};
  Inputs part(c);
  part.q_nope = copy_of(inputs.q_nope.view().slice(0, start, start + last - first));
  part.q_pe = copy_of(inputs.q_pe.view().slice(0, start, start + last - first));
  part.latents.clear();
  part.latents.push_back(copy_of(inputs.latents[i].view().slice(0, 0, std::max(0, kv_len))));
  return part;
}

Inputs only_request(const Inputs& inputs, int index) {
  return only_rows(inputs, index, 0, inputs.problem.requests[static_cast<size_t>(index)].q_len);
}

}  // namespace latent::conformance
