// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_sm90/prefill_maps.h"

#include "attention/backends/cuda_sm90/encode_tiled.h"
#include "base/check.h"

namespace latent::attention::cuda {
namespace {

// Of the L2, for keys and values that all row blocks of a section of heads read: half, as its two parts hold
// copies of what both read.
constexpr int64_t kSectionBytes = 24 << 20;

struct Rows {
  PrefillRows rows;
  int64_t count, heads, width;
  int box_rows;
  DType dtype;
};

CUtensorMap make_map(const Rows& r) {
  const auto bytes = static_cast<int64_t>(dtype_bytes(r.dtype));
  const int64_t token_bytes = r.rows.token_stride * bytes;
  const auto u64 = [](int64_t x) { return static_cast<cuuint64_t>(x); };
  const cuuint64_t dims[] = {u64(r.width), u64(r.heads), u64(r.box_rows), u64(r.count + r.box_rows)};
  const cuuint64_t strides[] = {u64(r.heads > 1 ? r.rows.head_stride * bytes : r.width * bytes),
                                u64(token_bytes), u64(token_bytes)};
  const cuuint32_t box[] = {64, 1, static_cast<cuuint32_t>(r.box_rows), 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  const auto base =
      reinterpret_cast<uintptr_t>(r.rows.data) - static_cast<uintptr_t>(r.box_rows * token_bytes);
  CUtensorMap map;
  const CUresult result = encode_tiled()(
      &map, r.dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
      reinterpret_cast<void*>(base), dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK(
      result == CUDA_SUCCESS,
      "the copy engine refuses {} rows of {} heads of {} columns, strides {} and {} bytes (driver error {})",
      r.count, r.heads, r.width, strides[1], strides[0], static_cast<int>(result));
  return map;
}

}  // namespace

PrefillMaps make_prefill_maps(const PrefillParams& p, DType dtype, const PrefillBoxes& boxes) {
  const auto map_of = [&](const PrefillRows& rows, int64_t count, int box_rows, int width) {
    const int64_t heads = rows.head_stride == 0 ? 1 : p.num_heads;
    return count == 0 || width == 0 ? CUtensorMap{} : make_map({rows, count, heads, width, box_rows, dtype});
  };
  const int64_t key_bytes = (boxes.nope_dim + boxes.v_dim) * static_cast<int64_t>(dtype_bytes(dtype));
  return {.q_nope = map_of(p.q_nope, p.num_tokens, boxes.query_rows, boxes.nope_dim),
          .q_pe = map_of(p.q_pe, p.num_tokens, boxes.query_rows, boxes.rope_dim),
          .k_nope = map_of(p.k_nope, p.num_keys, boxes.keys, boxes.nope_dim),
          .k_pe = map_of(p.k_pe, p.num_keys, boxes.keys, boxes.rope_dim),
          .v = map_of(p.v, p.num_keys, boxes.keys, boxes.v_dim),
          .k_pe_is_shared = p.k_pe.head_stride == 0,
          .section_keys = static_cast<int>(kSectionBytes / key_bytes)};
}

}  // namespace latent::attention::cuda
