// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_sm90/cuda_sm90_backend.h"

#include <algorithm>

#include "attention/backends/cuda_common/decode_params.h"
#include "attention/backends/cuda_common/device_info.h"
#include "attention/backends/cuda_common/split_memory.h"
#include "attention/backends/cuda_sm90/cache_map.h"
#include "attention/backends/cuda_sm90/decode_launch.h"
#include "attention/desc.h"
#include "base/math.h"

namespace latent::attention {
namespace {

using cuda::DecodeParams;
using cuda::DeviceInfo;
using cuda::Sm90Instance;
using cuda::SplitShape;

constexpr int kTileTokens = 64;

// The smallest row tile that holds the longest request's rows, else the largest.
const Sm90Instance* pick_instance(const MlaDesc& desc, int num_rows) {
  const Sm90Instance* best = nullptr;
  for (const int rows : {16, 32, 64}) {
    const Sm90Instance* found = cuda::find_sm90_instance(desc.q_dtype, desc.cache_dtype, desc.attrs.kv_rank,
                                                         desc.attrs.rope_dim, rows);
    if (found == nullptr) break;
    best = found;
    if (rows >= num_rows) break;
  }
  return best;
}

int num_row_tiles(const Sm90Instance& instance, int num_rows) {
  return ceil_div(std::max(num_rows, 1), instance.rows);
}

SplitShape split_shape(const Sm90Instance& instance, int num_rows, const DeviceInfo& device) {
  const int row_tiles = num_row_tiles(instance, num_rows);
  return {.num_parts = std::max(1, std::min(device.num_sms, instance.most_parts) / row_tiles),
          .num_row_tiles = row_tiles,
          .rows = instance.rows,
          .width = instance.kv_rank,
          .state_floats = 2};
}

class CudaSm90Backend final : public Backend {
 public:
  const char* name() const override { return "cuda_sm90"; }

  std::optional<Refusal> supports(const MlaDesc& desc) const override {
    if (const auto refusal = refuse_malformed(desc)) return refusal;
    if (!desc.on_device) return Refusal{"reads device memory, and these operands live in host memory"};
    const DeviceInfo& device = cuda::device_info();
    if (!device.present) return Refusal{"needs an NVIDIA GPU, and the driver shows none"};
    if (device.compute_major != 9)
      return Refusal{fmt::format("is built for compute capability 9.0, this GPU has {}.{}",
                                 device.compute_major, device.compute_minor)};
    if (!is_absorbed(desc.attrs)) return Refusal{"has no kernel for the multi-head form"};
    const bool codes = kv_layout(desc).format() != ops::KvFormat::kWide;
    if (!codes && desc.q_dtype != desc.cache_dtype) return Refusal{"wants queries and cache of one type"};
    if (pick_instance(desc, 1) == nullptr)
      return Refusal{fmt::format(
          "has no kernel for queries in {} and a cache of {} with latent {} and rope {}",
          to_string(desc.q_dtype), to_string(desc.cache_dtype), desc.attrs.kv_rank, desc.attrs.rope_dim)};
    const int page = desc.attrs.page_tokens;
    if (page % 16 != 0 || (page % kTileTokens != 0 && kTileTokens % page != 0))
      return Refusal{fmt::format("wants pages of 16, 32 or a multiple of 64 tokens, not {}", page)};
    return std::nullopt;
  }

  size_t workspace_bytes(const MlaDesc& desc, const Limits& limits) const override {
    const DeviceInfo& device = cuda::device_info();
    size_t bytes = 0;
    // The number of parts falls as rows grow, so the largest need may be that of any number of query tokens.
    for (int q_len = 1; q_len == 1 || q_len <= limits.max_tokens; q_len *= 2) {
      const int rows = q_len * desc.attrs.num_heads;
      for (const int r : {rows, rows * 2 - 1})
        bytes = std::max(bytes, cuda::split_bytes(split_shape(*pick_instance(desc, r), r, device)));
    }
    return bytes;
  }

  void reserve_plan(const MlaDesc&, const Limits&, Plan* plan) const override {
    plan->words.assign(1, 0);
    plan->device_state = cuda::create_arrival_counters();
  }

  // The kernels cut the work themselves; all they need from the host is the number of rows of the longest
  // request.
  void plan(const MlaDesc& desc, const Limits&, const SeqLengths& lengths, Plan* plan) const override {
    int q_len = 0;
    for (size_t i = 0; i + 1 < lengths.q_starts.size(); ++i)
      q_len = std::max(q_len, lengths.q_starts[i + 1] - lengths.q_starts[i]);
    plan->words[0] = q_len * desc.attrs.num_heads;
  }

  void run(const ops::MlaAttentionParams& p, const Plan& plan,
           const kernels::KernelContext& context) const override {
    const MlaDesc desc{
        .attrs = p.attrs, .q_dtype = p.q_nope.dtype(), .cache_dtype = p.cache.dtype(), .on_device = true};
    const Sm90Instance& instance = *pick_instance(desc, plan.words[0]);
    DecodeParams params = cuda::decode_params(p, name());
    const DeviceInfo& device = cuda::device_info();
    const SplitShape shape = split_shape(instance, plan.words[0], device);
    params.num_parts = shape.num_parts;
    params.num_row_tiles = shape.num_row_tiles;
    params.arrived = static_cast<int32_t*>(plan.device_state.get());
    cuda::carve_split_memory(shape, context.workspace, &params);
    const CUtensorMap cache =
        cuda::make_cache_map(params, {.dtype = p.cache.dtype(),
                                      .num_pages = static_cast<int>(p.cache.dim(0)),
                                      .width = static_cast<int>(p.cache.dim(2)),
                                      .box_tokens = std::min(p.attrs.page_tokens, kTileTokens),
                                      .code_stride = instance.code_stride});
    instance.launch(params, cache, context.stream);
  }
};

}  // namespace

const Backend& cuda_sm90_backend() {
  static const CudaSm90Backend backend;
  return backend;
}

}  // namespace latent::attention
