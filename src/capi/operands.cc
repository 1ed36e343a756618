// SPDX-License-Identifier: Apache-2.0
#include "capi/operands.h"

#include <cmath>

#include "attention/desc.h"
#include "base/math.h"
#include "capi/read_struct.h"

namespace latent::capi {
namespace {

constexpr const char* kOperands = "latent_attention_operands";
constexpr int64_t kDeviceAlignment = 16;

// A view whose innermost axis is contiguous.
struct Rows {
  const char* name;
  const void* data;
  DType dtype;
  Shape shape;
  int64_t outer_stride;
  int64_t inner_stride;  // of the middle axis
};

// The stride of an axis that is never stepped along may be anything; it becomes what a packed tensor has.
Rows with_plain_strides(Rows rows) {
  if (rows.shape[1] <= 1) rows.inner_stride = rows.shape[2];
  if (rows.shape[0] <= 1) rows.outer_stride = rows.inner_stride * rows.shape[1];
  return rows;
}

Status check_address(const Rows& rows, int64_t alignment) {
  const auto address = reinterpret_cast<uintptr_t>(rows.data);
  if (address == 0)
    return rows.shape[0] == 0 ? Status{} : Status{invalid(fmt::format("{} is NULL", rows.name))};
  if (address % static_cast<uintptr_t>(alignment) != 0)
    return make_error(ErrorCode::kInvalidArgument, "{} at {:#x}: it must start at a multiple of {} bytes",
                      rows.name, address, alignment);
  return {};
}

Status check_rows(const Rows& rows, bool on_device) {
  const auto bytes = static_cast<int64_t>(dtype_bytes(rows.dtype));
  const int64_t alignment = on_device ? kDeviceAlignment : bytes;
  if (Status s = check_address(rows, alignment); !s) return s;
  for (const int64_t stride : {rows.outer_stride, rows.inner_stride}) {
    if (stride < 0)
      return make_error(ErrorCode::kInvalidArgument, "{} has the stride {}; it may not be negative",
                        rows.name, stride);
    if (stride * bytes % alignment != 0)
      return make_error(ErrorCode::kInvalidArgument,
                        "{} has the stride {}; on a device rows start at multiples of {} bytes", rows.name,
                        stride, alignment);
  }
  return {};
}

TensorView view_of(const Rows& rows) {
  return {const_cast<void*>(rows.data), rows.dtype, rows.shape, {rows.outer_stride, rows.inner_stride, 1}};
}

TensorView ids(const int32_t* data, const Shape& shape, const Shape& strides) {
  return {const_cast<int32_t*>(data), DType::kI32, shape, strides};
}

Status check_counts(const latent_attention_operands& o, bool on_device) {
  const struct {
    int32_t value;
    const char* field;
  } counts[] = {{o.num_tokens, "num_tokens"},
                {o.num_seqs, "num_seqs"},
                {o.num_pages, "num_pages"},
                {o.max_pages, "max_pages"}};
  for (const auto& count : counts)
    if (count.value < 0)
      return make_error(ErrorCode::kInvalidArgument, "{}.{} is {}", kOperands, count.field, count.value);
  if (on_device && o.num_pages == 0)  // the copy engine wants something to address
    return make_error(ErrorCode::kInvalidArgument, "{}.num_pages is 0; on a device a cache has a page",
                      kOperands);
  if (!std::isfinite(o.cache_scale) || o.cache_scale < 0)
    return make_error(ErrorCode::kInvalidArgument, "{}.cache_scale is {}; it is positive, or 0 for 1",
                      kOperands, o.cache_scale);
  if (!std::isfinite(o.softmax_scale))
    return make_error(ErrorCode::kInvalidArgument, "{}.softmax_scale is {}", kOperands, o.softmax_scale);
  return {};
}

Status check_id_pointers(const latent_attention_operands& o) {
  const std::pair<const int32_t*, const char*> pointers[] = {
      {o.q_starts, "q_starts"}, {o.kv_lens, "kv_lens"}, {o.block_table, "block_table"}};
  for (const auto& [pointer, name] : pointers) {
    if (pointer == nullptr && (o.num_seqs > 0 || pointer == o.q_starts))
      return make_error(ErrorCode::kInvalidArgument, "{} is NULL", name);
    if (reinterpret_cast<uintptr_t>(pointer) % sizeof(int32_t) != 0)
      return make_error(ErrorCode::kInvalidArgument, "{} does not start at a multiple of 4 bytes", name);
  }
  if (o.block_table_stride < 0)
    return make_error(ErrorCode::kInvalidArgument, "block_table has the stride {}", o.block_table_stride);
  return {};
}

}  // namespace

Result<ops::MlaAttentionParams> read_operands(const latent_attention_operands* given,
                                              const Description& desc) {
  const Result<latent_attention_operands> read = read_struct(given, kOperands);
  if (!read) return read.error();
  const latent_attention_operands& o = *read;
  if (const Status s = check_counts(o, desc.mla.on_device); !s) return s.error();
  if (const Status s = check_id_pointers(o); !s) return s.error();

  const ops::MlaAttentionAttrs& a = desc.mla.attrs;
  const int64_t tokens = o.num_tokens, heads = a.num_heads;
  const Rows q_nope = with_plain_strides({"q_nope",
                                          o.q_nope,
                                          desc.mla.q_dtype,
                                          {tokens, heads, attention::q_width(a)},
                                          o.q_nope_token_stride,
                                          o.q_nope_head_stride});
  const Rows no_q_pe{"q_pe", o.q_nope, desc.mla.q_dtype, {tokens, heads, 0}, 0, 0};
  const Rows given_q_pe = with_plain_strides({"q_pe",
                                              o.q_pe,
                                              desc.mla.q_dtype,
                                              {tokens, heads, a.rope_dim},
                                              o.q_pe_token_stride,
                                              o.q_pe_head_stride});
  const Rows& q_pe = a.rope_dim == 0 ? no_q_pe : given_q_pe;
  const Rows cache = with_plain_strides({"cache",
                                         o.cache,
                                         desc.mla.cache_dtype,
                                         {o.num_pages, a.page_tokens, attention::kv_layout(desc.mla).width()},
                                         o.cache_page_stride,
                                         o.cache_token_stride});
  const Rows out = with_plain_strides({"out",
                                       o.out,
                                       desc.out_dtype,
                                       {tokens, heads, attention::out_width(a)},
                                       o.out_token_stride,
                                       o.out_head_stride});
  for (const Rows* rows : {&q_nope, &q_pe, &cache, &out})
    if (const Status s = check_rows(*rows, desc.mla.on_device); !s) return s.error();

  ops::MlaAttentionParams p{
      .q_nope = view_of(q_nope),
      .q_pe = view_of(q_pe),
      .cache = view_of(cache),
      .batch = {.q_starts = ids(o.q_starts, {o.num_seqs + int64_t{1}}, {1}),
                .kv_lens = ids(o.kv_lens, {o.num_seqs}, {1}),
                .block_table = ids(o.block_table, {o.num_seqs, o.max_pages}, {o.block_table_stride, 1})},
      .out = view_of(out),
      .attrs = a,
      .cache_scale = o.cache_scale == 0 ? 1 : o.cache_scale};
  p.attrs.softmax_scale = o.softmax_scale;
  if (o.lse != nullptr)
    p.lse = {o.lse, DType::kF32, {tokens, heads}, {o.lse_token_stride, o.lse_head_stride}};
  if (!attention::is_absorbed(a)) {
    const Rows kv_b{"kv_b",
                    o.kv_b,
                    desc.mla.kv_b_dtype,
                    {heads * (a.nope_dim + a.v_dim), 1, a.kv_rank},
                    o.kv_b_row_stride,
                    0};
    if (const Status s = check_rows(kv_b, desc.mla.on_device); !s) return s.error();
    p.kv_b.values = {
        const_cast<void*>(o.kv_b), kv_b.dtype, {kv_b.shape[0], kv_b.shape[2]}, {o.kv_b_row_stride, 1}};
  }
  return p;
}

Status check_pages(const ops::MlaAttentionParams& p) {
  const TensorView& table = p.batch.block_table;
  for (int64_t seq = 0; seq < attention::num_seqs(p.batch); ++seq) {
    const int64_t kv_len = attention::kv_len(p.batch, seq);
    const int64_t columns = ceil_div<int64_t>(kv_len, p.attrs.page_tokens);
    if (columns > table.dim(1))
      return make_error(ErrorCode::kInvalidArgument,
                        "kv_lens[{}] {} needs {} pages of {} tokens, and block_table has {} columns", seq,
                        kv_len, columns, p.attrs.page_tokens, table.dim(1));
    for (int64_t i = 0; i < columns; ++i) {
      const int32_t page = table.row<int32_t>(seq)[i];
      if (page < 0 || page >= p.cache.dim(0))
        return make_error(ErrorCode::kInvalidArgument,
                          "block_table[{}][{}] is {}, and the cache has {} pages", seq, i, page,
                          p.cache.dim(0));
    }
  }
  return {};
}

}  // namespace latent::capi
