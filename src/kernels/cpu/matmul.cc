// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul.h"

namespace latent::kernels::cpu {
namespace {

bool unit_columns(const TensorView& view) {
  return view.dim(view.rank() - 1) <= 1 || view.stride(view.rank() - 1) == 1;
}

const char* refuse_features(Isa isa, const CpuFeatures& f) {
  if (isa == Isa::kAvx2 && !f.avx2) return "needs AVX2";
  if (isa == Isa::kAvx512 && !f.avx512) return "needs AVX-512";
  if (isa == Isa::kAvx512Bf16 && !(f.avx512_bf16 && f.avx512_vbmi)) return "needs AVX-512 with BF16 and VBMI";
  return nullptr;
}

WeightFormat format_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return WeightFormat::kF32;
    case DType::kF16:
      return WeightFormat::kF16;
    case DType::kBF16:
      return WeightFormat::kBF16;
    default:
      return WeightFormat::kF8E4M3;
  }
}

// The most weight rows that a panel holds: half a megabyte of them, so that they stay in a core's
// second-level cache while many tokens pass.
int64_t most_panel_rows(const MatmulKernels& k, int64_t cols) {
  constexpr int64_t kPanelBytes = 512 << 10;
  const int64_t fits = kPanelBytes / std::max<int64_t>(padded_cols(k, cols) * k.x_bytes, 1);
  return std::max<int64_t>(std::min(fits, kRowBlock) / k.tile_rows, 1) * k.tile_rows;
}

// Few tokens stay in the second-level cache themselves: then a panel is one tile, read once while the next is
// fetched. Many tokens are read anew for each panel, so it is as large as may be.
int64_t panel_rows(const MatmulKernels& k, const PackedTokens& x, int64_t cols) {
  constexpr int64_t kTokenBytes = 256 << 10;
  const bool few = padded_tokens(k, x.num_tokens) * padded_cols(k, cols) * k.x_bytes <= kTokenBytes;
  return few ? k.tile_rows : most_panel_rows(k, cols);
}

}  // namespace

const char* refuse(Isa isa, const CpuFeatures& features, const ops::WeightView& w, const TensorView& x,
                   const TensorView& out) {
  if (const char* reason = refuse_features(isa, features)) return reason;
  if (!unit_columns(x) || !unit_columns(out) || (!w.scales.empty() && !unit_columns(w.scales)))
    return "needs unit stride along columns";
  if (isa != Isa::kAvx512Bf16) return nullptr;
  if (x.dtype() != DType::kBF16) return "serves bf16 activations only";
  const DType dtype = w.values.dtype();
  if (dtype == DType::kBF16 || (dtype == DType::kF8E4M3 && w.block_cols % 64 == 0)) return nullptr;
  return "serves bf16 weights and f8_e4m3 weights in blocks of a multiple of 64 columns";
}

const MatmulKernels& kernels_for(Isa isa, const ops::WeightView& weight) {
  const WeightFormat format = format_of(weight.values.dtype());
  switch (isa) {
    case Isa::kAvx2:
      return avx2_f32_kernels(format);
    case Isa::kAvx512:
      return avx512_f32_kernels(format);
    case Isa::kAvx512Bf16:
      return avx512_bf16_kernels(format);
  }
  CHECK(false, "no kernels of instruction set {} for format {}", static_cast<int>(isa),
        static_cast<int>(format));
  __builtin_unreachable();
}

WeightRows weight_rows(const ops::WeightView& w) {
  const bool scaled = !w.scales.empty();
  return {.values = w.values.raw(),
          .row_stride = w.values.stride(0),
          .rows = w.rows(),
          .cols = w.cols(),
          .scales = scaled ? w.scales.data<float>() : nullptr,
          .scale_stride = scaled ? w.scales.stride(0) : 0,
          .block_rows = scaled ? w.block_rows : 1,
          .block_cols = scaled ? w.block_cols : 1};
}

ThreadBuffers ThreadBuffers::take(Arena& arena, const MatmulKernels& k, int64_t cols) {
  return {.row = arena.take<float>(padded_cols(k, cols)),
          .panel = arena.take<std::byte>(most_panel_rows(k, cols) * padded_cols(k, cols) * k.x_bytes),
          .sums = arena.take<float>(most_panel_rows(k, cols) * k.tile_tokens * 16)};
}

PackJob pack_job(const MatmulKernels& k, const TensorView& x, void* packed) {
  const int group = group_of(k, x.dim(0));
  return {.source = x.raw(),
          .source_is_bf16 = x.dtype() == DType::kBF16,
          .row_stride = x.stride(0),
          .rows = nullptr,
          .first_col = 0,
          .num_cols = x.dim(1),
          .first_group = 0,
          .last_group = ceil_div<int64_t>(x.dim(0), group),
          .packed = packed,
          .num_tokens = x.dim(0),
          .num_chunks = padded_cols(k, x.dim(1)) / k.chunk,
          .group = group};
}

void multiply(const MatmulKernels& k, const WeightRows& w, Range rows, const PackedTokens& x,
              const ThreadBuffers& buffers, float* y, int64_t y_stride) {
  k.multiply({.weight = w,
              .first = rows.begin,
              .last = rows.end,
              .x = x,
              .y = y,
              .y_stride = y_stride,
              .panel_rows = panel_rows(k, x, w.cols),
              .row_scratch = buffers.row,
              .panel = buffers.panel,
              .sums = buffers.sums});
}

void store_block(const MatmulKernels& k, const float* y, int64_t y_stride, const TensorView& out,
                 int64_t first_col, int64_t num_cols) {
  const bool bf16 = out.dtype() == DType::kBF16;
  const int64_t bytes = bf16 ? 2 : 4;
  for (int64_t t = 0; t < out.dim(0); ++t)
    k.store(y + t * y_stride, num_cols,
            static_cast<std::byte*>(out.raw()) + (t * out.stride(0) + first_col) * bytes, bf16);
}

}  // namespace latent::kernels::cpu
