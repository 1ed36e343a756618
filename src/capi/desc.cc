// SPDX-License-Identifier: Apache-2.0
#include "capi/desc.h"

#include <limits>

#include "base/parallel.h"
#include "capi/read_struct.h"

namespace latent::capi {
namespace {

using attention::Limits;
using attention::MlaDesc;

constexpr const char* kDesc = "latent_attention_desc";
constexpr const char* kLimits = "latent_attention_limits";

Result<DType> read_dtype(int32_t value, const char* field) {
  switch (value) {
    case LATENT_F32:
      return DType::kF32;
    case LATENT_F16:
      return DType::kF16;
    case LATENT_BF16:
      return DType::kBF16;
    case LATENT_F8_E4M3:
      return DType::kF8E4M3;
    case LATENT_U8:
      return DType::kU8;
    default:
      return make_error(ErrorCode::kInvalidArgument, "{}.{} {} is no latent_dtype", kDesc, field, value);
  }
}

Status read_dtypes(const latent_attention_desc& d, Description* desc) {
  const struct {
    int32_t value;
    const char* field;
    DType* to;
  } fields[] = {{d.q_dtype, "q_dtype", &desc->mla.q_dtype},
                {d.cache_dtype, "cache_dtype", &desc->mla.cache_dtype},
                {d.out_dtype == 0 ? d.q_dtype : d.out_dtype, "out_dtype", &desc->out_dtype},
                {d.kv_b_dtype, "kv_b_dtype", &desc->mla.kv_b_dtype}};
  for (const auto& field : fields) {
    if (field.to == &desc->mla.kv_b_dtype && d.form == LATENT_ABSORBED) continue;
    Result<DType> dtype = read_dtype(field.value, field.field);
    if (!dtype) return dtype.error();
    *field.to = *dtype;
  }
  if (desc->out_dtype != desc->mla.q_dtype && (d.memory == LATENT_DEVICE || desc->out_dtype != DType::kF32))
    return make_error(ErrorCode::kInvalidArgument, "{}.out_dtype {} with queries in {}: it may be theirs{}",
                      kDesc, to_string(desc->out_dtype), to_string(desc->mla.q_dtype),
                      d.memory == LATENT_DEVICE ? "" : ", or f32");
  return {};
}

// Fields that must lie in a range.
struct Bound {
  int64_t value;
  const char* field;
  int64_t least, most;
};

Status check_bounds(const char* type, std::initializer_list<Bound> bounds) {
  for (const Bound& b : bounds)
    if (b.value < b.least || b.value > b.most)
      return make_error(ErrorCode::kInvalidArgument, "{}.{} {}: it lies between {} and {}", type, b.field,
                        b.value, b.least, b.most);
  return {};
}

constexpr int64_t kMaxWidth = 1 << 16;  // any more is an argument in the wrong place

Status check_sizes(const latent_attention_desc& d) {
  const bool absorbed = d.form == LATENT_ABSORBED;
  const Status status = check_bounds(kDesc, {{d.form, "form", LATENT_ABSORBED, LATENT_MULTI_HEAD},
                                             {d.memory, "memory", LATENT_HOST, LATENT_DEVICE},
                                             {d.num_heads, "num_heads", 1, kMaxWidth},
                                             {d.latent_dim, "latent_dim", 1, kMaxWidth},
                                             {d.rope_dim, "rope_dim", 0, kMaxWidth},
                                             {d.page_tokens, "page_tokens", 1, kMaxWidth},
                                             {d.nope_dim, "nope_dim", 0, absorbed ? 0 : kMaxWidth},
                                             {d.v_dim, "v_dim", absorbed ? 0 : 1, absorbed ? 0 : kMaxWidth}});
  if (!status) return status;
  if (d.rope_dim % 2 != 0)
    return make_error(ErrorCode::kInvalidArgument, "{}.rope_dim {} is odd; it is rotated in pairs", kDesc,
                      d.rope_dim);
  return {};
}

}  // namespace

Result<Description> read_desc(const latent_attention_desc* given) {
  const Result<latent_attention_desc> read = read_struct(given, kDesc);
  if (!read) return read.error();
  const latent_attention_desc& d = *read;
  if (const Status s = check_sizes(d); !s) return s.error();
  Description desc;
  desc.mla.attrs = {
      .form = d.form == LATENT_ABSORBED ? ops::AttentionForm::kAbsorbed : ops::AttentionForm::kMultiHead,
      .num_heads = d.num_heads,
      .kv_rank = d.latent_dim,
      .rope_dim = d.rope_dim,
      .nope_dim = d.nope_dim,
      .v_dim = d.v_dim,
      .page_tokens = d.page_tokens};
  desc.mla.on_device = d.memory == LATENT_DEVICE;
  if (const Status s = read_dtypes(d, &desc); !s) return s.error();
  return desc;
}

Result<Limits> read_limits(const latent_attention_limits* given, const MlaDesc& desc) {
  const Result<latent_attention_limits> read = read_struct(given, kLimits);
  if (!read) return read.error();
  const latent_attention_limits& l = *read;
  // Rows of all heads, and keys, are counted in 32 bits.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max() / 2;
  const Status status = check_bounds(kLimits, {{l.max_tokens, "max_tokens", 1, kMost / desc.attrs.num_heads},
                                               {l.max_seqs, "max_seqs", 1, kMost / 2},
                                               {l.max_kv_len, "max_kv_len", 1, kMost},
                                               {l.num_threads, "num_threads", 0, 4096},
                                               {l.reserved, "reserved", 0, 0}});
  if (!status) return status.error();
  return Limits{.max_tokens = l.max_tokens,
                .max_seqs = l.max_seqs,
                .max_kv_len = l.max_kv_len,
                .num_threads = l.num_threads == 0 ? available_cores() : l.num_threads,
                .deterministic = l.deterministic != 0};
}

}  // namespace latent::capi
