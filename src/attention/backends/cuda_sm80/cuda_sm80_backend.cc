// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_sm80/cuda_sm80_backend.h"

#include <algorithm>

#include "attention/backends/cuda_common/device_info.h"
#include "attention/backends/cuda_common/split_memory.h"
#include "attention/backends/cuda_sm80/decode_launch.h"
#include "attention/desc.h"
#include "base/check.h"
#include "base/math.h"
#include "device/cuda_check.h"

namespace latent::attention {
namespace {

using cuda::DecodeInstance;
using cuda::DecodeParams;
using cuda::DeviceInfo;
using cuda::SplitShape;

// The smallest row tile that holds the longest request's rows, else the largest that fits the device.
const DecodeInstance* pick_instance(const MlaDesc& desc, int num_rows, const DeviceInfo& device) {
  const DecodeInstance* best = nullptr;
  for (const int rows : {16, 32, 64}) {
    const DecodeInstance* i =
        cuda::find_decode_instance(desc.q_dtype, desc.attrs.kv_rank, desc.attrs.rope_dim, rows);
    if (i == nullptr || i->least_shared_bytes > device.shared_bytes_per_block) break;
    best = i;
    if (rows >= num_rows) break;
  }
  return best;
}

SplitShape split_shape(const DecodeInstance& instance, int num_rows, const DeviceInfo& device) {
  const int row_tiles = ceil_div(std::max(num_rows, 1), instance.rows);
  return {.num_parts = std::max(1, device.num_sms / row_tiles),
          .num_row_tiles = row_tiles,
          .rows = instance.rows,
          .width = instance.kv_rank};
}

// Rows of 16 bytes at addresses of 16 bytes, as cp.async wants them.
bool is_aligned(const TensorView& view) {
  if (view.empty()) return true;
  const auto bytes = static_cast<int64_t>(dtype_bytes(view.dtype()));
  if (reinterpret_cast<uintptr_t>(view.raw()) % 16 != 0 || view.stride(view.rank() - 1) != 1) return false;
  for (int axis = 0; axis + 1 < view.rank(); ++axis)
    if (view.stride(axis) * bytes % 16 != 0) return false;
  return true;
}

DecodeParams decode_params(const ops::MlaAttentionParams& p) {
  CHECK(is_aligned(p.q_nope) && (p.attrs.rope_dim == 0 || is_aligned(p.q_pe)) && is_aligned(p.cache) &&
            is_aligned(p.out),
        "cuda_sm80: rows of q, cache and out must start at multiples of 16 bytes");
  return {.q_nope = p.q_nope.raw(),
          .q_pe = p.q_pe.raw(),
          .cache = p.cache.raw(),
          .q_starts = p.batch.q_starts.data<int32_t>(),
          .kv_lens = p.batch.kv_lens.data<int32_t>(),
          .block_table = p.batch.block_table.data<int32_t>(),
          .out = p.out.raw(),
          .lse = p.lse.empty() ? nullptr : p.lse.data<float>(),
          .q_nope_token_stride = p.q_nope.stride(0),
          .q_nope_head_stride = p.q_nope.stride(1),
          .q_pe_token_stride = p.q_pe.stride(0),
          .q_pe_head_stride = p.q_pe.stride(1),
          .cache_page_stride = p.cache.stride(0),
          .cache_row_stride = p.cache.stride(1),
          .table_stride = p.batch.block_table.stride(0),
          .out_token_stride = p.out.stride(0),
          .out_head_stride = p.out.stride(1),
          .lse_token_stride = p.lse.empty() ? 0 : p.lse.stride(0),
          .lse_head_stride = p.lse.empty() ? 0 : p.lse.stride(1),
          .num_tokens = static_cast<int>(p.out.dim(0)),
          .num_seqs = static_cast<int>(p.batch.kv_lens.dim(0)),
          .num_heads = p.attrs.num_heads,
          .page_tokens = p.attrs.page_tokens,
          .softmax_scale = p.attrs.softmax_scale};
}

class CudaSm80Backend final : public Backend {
 public:
  const char* name() const override { return "cuda_sm80"; }

  std::optional<Refusal> supports(const MlaDesc& desc) const override {
    if (const auto refusal = refuse_malformed(desc)) return refusal;
    if (!desc.on_device) return Refusal{"reads device memory, and these operands live in host memory"};
    const DeviceInfo& device = cuda::device_info();
    if (!device.present) return Refusal{"needs an NVIDIA GPU, and the driver shows none"};
    if (device.compute_major < 8)
      return Refusal{fmt::format("needs compute capability 8.0, this GPU has {}.{}", device.compute_major,
                                 device.compute_minor)};
    if (!is_absorbed(desc.attrs)) return Refusal{"has no kernel for the multi-head form"};
    if (desc.q_dtype != desc.cache_dtype) return Refusal{"wants queries and cache of one type"};
    if (pick_instance(desc, 1, device) == nullptr)
      return Refusal{fmt::format("has no kernel for {} with latent {} and rope {}",
                                 to_string(desc.cache_dtype), desc.attrs.kv_rank, desc.attrs.rope_dim)};
    return std::nullopt;
  }

  size_t workspace_bytes(const MlaDesc& desc, const Limits& limits) const override {
    const DeviceInfo& device = cuda::device_info();
    size_t bytes = 0;
    // The number of parts falls as rows grow, so the largest need may be that of any number of query tokens.
    for (int q_len = 1; q_len <= limits.max_tokens; q_len *= 2) {
      const int rows = std::min(q_len, limits.max_tokens) * desc.attrs.num_heads;
      for (const int r : {rows, rows * 2 - 1})
        bytes = std::max(bytes, cuda::split_bytes(split_shape(*pick_instance(desc, r, device), r, device)));
    }
    return bytes;
  }

  void reserve_plan(const MlaDesc&, const Limits&, Plan* plan) const override {
    plan->words.assign(1, 0);
    plan->device_state = cuda::create_arrival_counters();
  }

  // The kernel cuts the work itself; all it needs from the host is the number of rows of the longest request.
  void plan(const MlaDesc& desc, const Limits&, const SeqLengths& lengths, Plan* plan) const override {
    int q_len = 0;
    for (size_t i = 0; i + 1 < lengths.q_starts.size(); ++i)
      q_len = std::max(q_len, lengths.q_starts[i + 1] - lengths.q_starts[i]);
    plan->words[0] = q_len * desc.attrs.num_heads;
  }

  void run(const ops::MlaAttentionParams& p, const Plan& plan,
           const kernels::KernelContext& context) const override {
    const DeviceInfo& device = cuda::device_info();
    const MlaDesc desc{
        .attrs = p.attrs, .q_dtype = p.q_nope.dtype(), .cache_dtype = p.cache.dtype(), .on_device = true};
    const DecodeInstance& instance = *pick_instance(desc, plan.words[0], device);
    DecodeParams params = decode_params(p);
    const SplitShape shape = split_shape(instance, plan.words[0], device);
    params.num_parts = shape.num_parts;
    params.num_row_tiles = shape.num_row_tiles;
    params.arrived = static_cast<int32_t*>(plan.device_state.get());
    cuda::carve_split_memory(shape, context.workspace, &params);
    const int spare = (device.shared_bytes_per_block - instance.least_shared_bytes) / instance.stage_bytes;
    instance.launch(params, std::min(2 + spare, cuda::kMaxStages), context.stream);
  }
};

}  // namespace

const Backend& cuda_sm80_backend() {
  static const CudaSm80Backend backend;
  return backend;
}

}  // namespace latent::attention
