// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ops/kv_layout.h"
#include "ops/mla_attention.h"
#include "ops/prefill_attention.h"
#include "ops/rope.h"
#include "tensor/matcher.h"

namespace latent::ops {
namespace {

constexpr std::initializer_list<DType> kActivation = {DType::kF32, DType::kBF16};
constexpr std::initializer_list<DType> kWideFloat = {DType::kF32, DType::kF16, DType::kBF16};
constexpr std::initializer_list<DType> kWeight = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3};

constexpr std::initializer_list<DType> kCache = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3,
                                                 DType::kU8};

// A cache of rows of these widths, and its scale.
void match_cache(ShapeMatcher& m, const TensorView& cache, int64_t kv_rank, int64_t rope_dim) {
  const KvLayout layout = {
      .kv_rank = static_cast<int>(kv_rank), .rope_dim = static_cast<int>(rope_dim), .dtype = cache.dtype()};
  m.bind("width", layout.width());
  m.match("cache", cache, {"num_pages", "page_tokens", "width"}, kCache);
}

Status check_cache(const char* where, const TensorView& cache, int64_t kv_rank, float scale) {
  const KvLayout layout = {.kv_rank = static_cast<int>(kv_rank), .dtype = cache.dtype()};
  if (const char* reason = refuse_kv_row(layout))
    return make_error(ErrorCode::kInvalidArgument, "{}: kv_rank {} {}", where, kv_rank, reason);
  if (layout.format() != KvFormat::kWide && cache.stride(2) != 1)
    return make_error(ErrorCode::kInvalidArgument, "{}: the rows of {} are not contiguous", where,
                      to_string(cache));
  if (layout.format() == KvFormat::kFp8 && !(std::isfinite(scale) && scale > 0))
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: the scale of an f8_e4m3 cache is {}; it must be finite and positive", where,
                      scale);
  return {};
}

void match_rotation(ShapeMatcher& m, const TensorView& positions, const TensorView& cos_sin) {
  m.match("positions", positions, {"num_tokens"}, {DType::kI32});
  m.match("cos_sin", cos_sin, {"max_positions", "rope_dim"}, {DType::kF32});
}

Status even_rope(const ShapeMatcher& m) {
  if (!m.status() || m.size("rope_dim") % 2 == 0) return m.status();
  return make_error(ErrorCode::kInvalidArgument, "rope: rope_dim {} is odd; it is rotated in pairs",
                    m.size("rope_dim"));
}

}  // namespace

Status check(const RopeParams& p) {
  ShapeMatcher m("rope");
  m.match("x", p.x, {"num_tokens", "num_heads", "rope_dim"}, kActivation);
  match_rotation(m, p.positions, p.cos_sin);
  m.match("out", p.out, {"num_tokens", "num_heads", "rope_dim"}, {p.x.dtype()});
  return even_rope(m);
}

const char* refuse_kv_row(const KvLayout& layout) {
  return layout.format() == KvFormat::kFp8Blocks && layout.kv_rank % kKvScaleColumns != 0
             ? "is no multiple of 128, the columns that share a scale in a cache of bytes (u8)"
             : nullptr;
}

static void match_write(ShapeMatcher& m, const KvCacheWriteParams& p) {
  m.match("kv_c", p.kv_c, {"num_tokens", "kv_rank"}, kActivation);
  m.match("k_pe", p.k_pe, {"num_tokens", "rope_dim"}, kActivation);
  m.match("slots", p.slots, {"num_tokens"}, {DType::kI32});
  if (m.status()) match_cache(m, p.cache, m.size("kv_rank"), m.size("rope_dim"));
}

Status check(const KvCacheWriteParams& p) {
  ShapeMatcher m("kv_cache_write");
  match_write(m, p);
  return m.status() ? check_cache("kv_cache_write", p.cache, m.size("kv_rank"), p.scale) : m.status();
}

Status check(const RopeKvCacheWriteParams& p) {
  ShapeMatcher m("rope_kv_cache_write");
  match_write(m, p.write);
  match_rotation(m, p.positions, p.cos_sin);
  if (Status s = even_rope(m); !s) return s;
  return check_cache("rope_kv_cache_write", p.write.cache, m.size("kv_rank"), p.write.scale);
}

Status check(const MlaAttentionParams& p) {
  const MlaAttentionAttrs& a = p.attrs;
  const bool absorbed = a.form == AttentionForm::kAbsorbed;
  ShapeMatcher m("mla_attention");
  m.bind("num_heads", a.num_heads);
  m.bind("q_width", absorbed ? a.kv_rank : a.nope_dim);
  m.bind("out_width", absorbed ? a.kv_rank : a.v_dim);
  m.bind("rope_dim", a.rope_dim);
  m.bind("page_tokens", a.page_tokens);
  m.match("q_nope", p.q_nope, {"num_tokens", "num_heads", "q_width"}, kWideFloat);
  m.match("q_pe", p.q_pe, {"num_tokens", "num_heads", "rope_dim"}, kWideFloat);
  match_cache(m, p.cache, a.kv_rank, a.rope_dim);
  m.match("kv_lens", p.batch.kv_lens, {"num_seqs"}, {DType::kI32});
  m.match("block_table", p.batch.block_table, {"num_seqs", "max_pages"}, {DType::kI32});
  if (m.status()) m.bind("num_seqs + 1", m.size("num_seqs") + 1);
  m.match("q_starts", p.batch.q_starts, {"num_seqs + 1"}, {DType::kI32});
  m.match("out", p.out, {"num_tokens", "num_heads", "out_width"}, kWideFloat);
  if (!p.lse.empty()) m.match("lse", p.lse, {"num_tokens", "num_heads"}, {DType::kF32});
  if (!absorbed) {
    m.bind("kv_b_rows", int64_t{a.num_heads} * (a.nope_dim + a.v_dim));
    m.bind("kv_rank", a.kv_rank);
    m.match("kv_b", p.kv_b.values, {"kv_b_rows", "kv_rank"}, kWeight);
  }
  return m.status() ? check_cache("mla_attention", p.cache, a.kv_rank, p.cache_scale) : m.status();
}

Status check(const PrefillAttentionParams& p) {
  const PrefillAttentionAttrs& a = p.attrs;
  ShapeMatcher m("prefill_attention");
  m.bind("num_heads", a.num_heads);
  m.bind("nope_dim", a.nope_dim);
  m.bind("rope_dim", a.rope_dim);
  m.bind("v_dim", a.v_dim);
  m.match("q_nope", p.q_nope, {"num_tokens", "num_heads", "nope_dim"}, kWideFloat);
  m.match("q_pe", p.q_pe, {"num_tokens", "num_heads", "rope_dim"}, {p.q_nope.dtype()});
  m.match("k_nope", p.k_nope, {"num_keys", "num_heads", "nope_dim"}, {p.q_nope.dtype()});
  m.match("k_pe", p.k_pe, {"num_keys", "num_heads", "rope_dim"}, {p.q_nope.dtype()});
  m.match("v", p.v, {"num_keys", "num_heads", "v_dim"}, {p.q_nope.dtype()});
  m.match("q_starts", p.q_starts, {"num_seqs + 1"}, {DType::kI32});
  m.match("kv_starts", p.kv_starts, {"num_seqs + 1"}, {DType::kI32});
  m.match("out", p.out, {"num_tokens", "num_heads", "v_dim"}, {p.q_nope.dtype(), DType::kF32});
  if (!p.lse.empty()) m.match("lse", p.lse, {"num_tokens", "num_heads"}, {DType::kF32});
  return m.status();
}

Status check(const MergeStatesParams& p) {
  ShapeMatcher m("merge_states");
  m.match("out_a", p.out_a, {"num_tokens", "num_heads", "width"}, {DType::kF32});
  m.match("lse_a", p.lse_a, {"num_tokens", "num_heads"}, {DType::kF32});
  m.match("out_b", p.out_b, {"num_tokens", "num_heads", "width"}, {DType::kF32});
  m.match("lse_b", p.lse_b, {"num_tokens", "num_heads"}, {DType::kF32});
  if (!p.out.empty()) m.match("out", p.out, {"num_tokens", "num_heads", "width"}, kWideFloat);
  return m.status();
}

}  // namespace latent::ops
