// SPDX-License-Identifier: Apache-2.0
// Checks of the cache kernels' operands.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/backends/cuda_cache/cache_kernels.h"
#include "attention/cache/cache_gather.h"
#include "attention/cache/cache_write.h"
#include "tensor/matcher.h"

namespace latent::attention {
namespace {

using cuda::CachePages;

constexpr std::initializer_list<DType> kHalf = {DType::kBF16, DType::kF16};

template <class... Args>
Error refuse(fmt::format_string<Args...> text, Args&&... args) {
  return make_error(ErrorCode::kInvalidArgument, text, std::forward<Args>(args)...);
}

// Rows of unit stride that start at multiples of `bytes`, whichever index leads to them.
Status check_rows(const char* where, const char* name, const TensorView& view, int64_t bytes) {
  const auto element = static_cast<int64_t>(dtype_bytes(view.dtype()));
  if (view.num_elements() == 0) return {};
  if (view.stride(view.rank() - 1) != 1)
    return refuse("{}: the rows of {} {} are not contiguous", where, name, to_string(view));
  bool aligned = reinterpret_cast<uintptr_t>(view.raw()) % static_cast<uintptr_t>(bytes) == 0;
  for (int axis = 0; axis + 1 < view.rank(); ++axis)
    aligned = aligned && (view.dim(axis) == 1 || view.stride(axis) * element % bytes == 0);
  if (!aligned)
    return refuse("{}: the rows of {} {} at {} do not start at multiples of {} bytes", where, name,
                  to_string(view), view.raw(), bytes);
  return {};
}

// [num_pages, page_tokens, width] of such rows.
Result<CachePages> read_cache(const char* where, const TensorView& view, int64_t kv_rank, int64_t rope_dim,
                              float scale) {
  const ops::KvLayout layout = {
      .kv_rank = static_cast<int>(kv_rank), .rope_dim = static_cast<int>(rope_dim), .dtype = view.dtype()};
  const bool codes = layout.format() != ops::KvFormat::kWide;
  if (kv_rank < 8 || kv_rank > cuda::kMaxCacheRank || kv_rank % 8 != 0 || rope_dim < 0 ||
      rope_dim > cuda::kMaxCacheRope || rope_dim % 8 != 0)
    return refuse("{}: kv_rank {} and rope_dim {}; they are multiples of 8 up to {} and {}", where, kv_rank,
                  rope_dim, cuda::kMaxCacheRank, cuda::kMaxCacheRope);
  if (const char* reason = ops::refuse_kv_row(layout))
    return refuse("{}: kv_rank {} {}", where, kv_rank, reason);
  ShapeMatcher m(where);
  m.bind("width", layout.width());
  m.match("cache", view, {"num_pages", "page_tokens", "width"},
          {DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kU8});
  if (!m.status()) return m.status().error();
  if (m.size("num_pages") * m.size("page_tokens") > std::numeric_limits<int32_t>::max())
    return refuse("{}: cache {} has more slots than 32 bits number", where, to_string(view));
  if (m.size("page_tokens") < 1) return refuse("{}: pages of no tokens", where);
  if (layout.format() == ops::KvFormat::kFp8 && !(std::isfinite(scale) && scale > 0))
    return refuse("{}: the scale of an f8_e4m3 cache is {}; it must be finite and positive", where, scale);
  if (Status s = check_rows(where, "cache", view, codes ? 8 : 16); !s) return s.error();
  const auto element = static_cast<int64_t>(dtype_bytes(view.dtype()));
  return CachePages{.data = static_cast<unsigned char*>(view.raw()),
                    .page_bytes = view.stride(0) * element,
                    .row_bytes = view.stride(1) * element,
                    .num_pages = static_cast<int>(view.dim(0)),
                    .page_tokens = static_cast<int>(view.dim(1)),
                    .kv_rank = layout.kv_rank,
                    .rope_dim = layout.rope_dim,
                    .dtype = view.dtype(),
                    .scale = scale};
}

}  // namespace

Status write_cache(const CacheWriteParams& p, void* stream) {
  constexpr const char* kWhere = "write_cache";
  const DType dtype = p.kv_c.dtype();
  const bool normalises = !p.norm_weight.empty(), rotates = !p.positions.empty();
  const int64_t rope_dim = p.k_pe.empty() ? 0 : p.k_pe.dim(p.k_pe.rank() - 1);
  ShapeMatcher m(kWhere);
  m.match("kv_c", p.kv_c, {"num_tokens", "kv_rank"}, kHalf);
  if (!p.k_pe.empty()) m.match("k_pe", p.k_pe, {"num_tokens", "rope_dim"}, {dtype});
  m.match("slots", p.slots, {"num_tokens"}, {DType::kI32});
  if (normalises) m.match("norm_weight", p.norm_weight, {"kv_rank"}, {dtype, DType::kF32});
  if (rotates) {
    m.bind("rope_dim", rope_dim);
    m.match("positions", p.positions, {"num_tokens"}, {DType::kI32});
    m.match("cos_sin", p.cos_sin, {"max_positions", "rope_dim"}, {DType::kF32});
  }
  if (!m.status()) return m.status();
  if (p.cache.dtype() != dtype && (p.cache.dtype() == DType::kF16 || p.cache.dtype() == DType::kBF16))
    return refuse("{}: a {} cache of {} activations", kWhere, to_string(p.cache.dtype()), to_string(dtype));
  if (p.cache.dtype() == DType::kU8 && dtype != DType::kBF16)
    return refuse("{}: a cache of bytes holds rope keys of bf16, exactly; these are {}", kWhere,
                  to_string(dtype));
  if (!std::isfinite(p.eps) || p.eps < 0) return refuse("{}: eps is {}", kWhere, p.eps);
  const Result<CachePages> cache = read_cache(kWhere, p.cache, m.size("kv_rank"), rope_dim, p.scale);
  if (!cache) return cache.error();
  if (Status s = check_rows(kWhere, "kv_c", p.kv_c, 16); !s) return s;
  if (!p.k_pe.empty())
    if (Status s = check_rows(kWhere, "k_pe", p.k_pe, 16); !s) return s;
  if (rotates)
    if (Status s = check_rows(kWhere, "cos_sin", p.cos_sin, 4); !s) return s;
  if (normalises)
    if (Status s = check_rows(kWhere, "norm_weight", p.norm_weight, 16); !s) return s;
  if (p.kv_c.dim(0) == 0) return {};
  cuda::launch_cache_write({.kv_c = p.kv_c.raw(),
                            .norm_weight = p.norm_weight.raw(),
                            .k_pe = p.k_pe.raw(),
                            .positions = rotates ? p.positions.data<int32_t>() : nullptr,
                            .cos_sin = rotates ? p.cos_sin.data<float>() : nullptr,
                            .slots = p.slots.data<int32_t>(),
                            .kv_c_stride = p.kv_c.stride(0),
                            .k_pe_stride = p.k_pe.empty() ? 0 : p.k_pe.stride(0),
                            .positions_stride = rotates ? p.positions.stride(0) : 0,
                            .cos_sin_stride = rotates ? p.cos_sin.stride(0) : 0,
                            .slots_stride = p.slots.stride(0),
                            .cache = *cache,
                            .num_tokens = static_cast<int>(p.kv_c.dim(0)),
                            .max_positions = rotates ? static_cast<int>(p.cos_sin.dim(0)) : 0,
                            .eps = p.eps,
                            .weight_is_f32 = normalises && p.norm_weight.dtype() == DType::kF32,
                            .rotates_halves = p.style == ops::RopeStyle::kHalves},
                           dtype, stream);
  return {};
}

Status gather_cache(const CacheGatherParams& p, void* stream) {
  constexpr const char* kWhere = "gather_cache";
  ShapeMatcher m(kWhere);
  m.bind("columns", int64_t{p.kv_rank} + p.rope_dim);
  m.match("out", p.out, {"num_rows", "columns"}, {DType::kF32, DType::kBF16, DType::kF16});
  m.match("block_table", p.block_table, {"num_seqs", "max_pages"}, {DType::kI32});
  if (!p.starts.empty()) m.match("starts", p.starts, {"num_seqs"}, {DType::kI32});
  if (m.status()) m.bind("num_seqs + 1", m.size("num_seqs") + 1);
  m.match("out_starts", p.out_starts, {"num_seqs + 1"}, {DType::kI32});
  if (!m.status()) return m.status();
  if (p.block_table.stride(1) != 1 && p.block_table.dim(1) > 1)
    return refuse("{}: the rows of block_table {} are not contiguous", kWhere, to_string(p.block_table));
  const Result<CachePages> cache = read_cache(kWhere, p.cache, p.kv_rank, p.rope_dim, p.scale);
  if (!cache) return cache.error();
  const bool wide = p.cache.dtype() == DType::kBF16 || p.cache.dtype() == DType::kF16;
  if (wide && p.out.dtype() != p.cache.dtype() && p.out.dtype() != DType::kF32)
    return refuse("{}: rows of {} as {}", kWhere, to_string(p.cache.dtype()), to_string(p.out.dtype()));
  if (Status s = check_rows(kWhere, "out", p.out, 16); !s) return s;
  if (p.out.dim(0) == 0) return {};
  cuda::launch_cache_gather({.cache = *cache,
                             .block_table = p.block_table.data<int32_t>(),
                             .starts = p.starts.empty() ? nullptr : p.starts.data<int32_t>(),
                             .out_starts = p.out_starts.data<int32_t>(),
                             .out = p.out.raw(),
                             .table_stride = p.block_table.stride(0),
                             .starts_stride = p.starts.empty() ? 0 : p.starts.stride(0),
                             .out_starts_stride = p.out_starts.stride(0),
                             .out_stride = p.out.stride(0),
                             .num_seqs = static_cast<int>(p.block_table.dim(0)),
                             .max_pages = static_cast<int>(p.block_table.dim(1)),
                             .num_rows = static_cast<int>(p.out.dim(0)),
                             .out_dtype = p.out.dtype()},
                            stream);
  return {};
}

}  // namespace latent::attention
