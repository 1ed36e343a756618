// SPDX-License-Identifier: Apache-2.0
#include "compare/flash_mla_backend.h"

#include <algorithm>

#include "attention/backends/cuda_common/device_info.h"
#include "base/check.h"
#include "compare/flash_mla_driver.h"
#include "device/cuda_buffer.h"
#include "device/cuda_check.h"

namespace latent::bench {
namespace {

using attention::Limits;
using attention::MlaDesc;
using attention::Plan;
using attention::Refusal;

constexpr int kLatent = 512, kRope = 64, kPageTokens = 64;

int num_sms() { return attention::cuda::device_info().num_sms; }

// What its metadata kernel writes, and the lengths it reads.
struct DeviceState {
  CudaBuffer metadata, kv_lens;
};

class FlashMlaBackend final : public attention::Backend {
 public:
  const char* name() const override { return "flash_mla"; }

  std::optional<Refusal> supports(const MlaDesc& d) const override {
    const attention::cuda::DeviceInfo& device = attention::cuda::device_info();
    if (!d.on_device) return Refusal{"reads device memory, and these operands live in host memory"};
    if (!device.present) return Refusal{"needs an NVIDIA GPU, and the driver shows none"};
    if (device.compute_major != 9) return Refusal{"has a dense decode kernel for Hopper alone"};
    const bool has_kernel = d.attrs.form == ops::AttentionForm::kAbsorbed && d.attrs.kv_rank == kLatent &&
                            d.attrs.rope_dim == kRope && d.attrs.page_tokens == kPageTokens &&
                            d.q_dtype == DType::kBF16 && d.cache_dtype == DType::kBF16;
    if (!has_kernel) return Refusal{"is built for bf16, latent 512, rope 64 and pages of 64 tokens"};
    return std::nullopt;
  }

  size_t workspace_bytes(const MlaDesc& d, const Limits& limits) const override {
    return flash_mla_sizes(limits.max_seqs, limits.max_tokens / limits.max_seqs, d.attrs.num_heads, num_sms())
        .scratch_bytes;
  }

  void reserve_plan(const MlaDesc& d, const Limits& limits, Plan* plan) const override {
    const FlashMlaSizes sizes =
        flash_mla_sizes(limits.max_seqs, limits.max_tokens / limits.max_seqs, d.attrs.num_heads, num_sms());
    auto state = std::make_shared<DeviceState>();
    state->metadata = *CudaBuffer::create(sizes.metadata_bytes);
    state->kv_lens = *CudaBuffer::create(static_cast<size_t>(limits.max_seqs) * sizeof(int32_t));
    plan->device_state = std::move(state);
    plan->words.assign(1, 0);
  }

  // Its own metadata kernel, waited for.
  void plan(const MlaDesc& d, const Limits&, const attention::SeqLengths& lengths,
            Plan* plan) const override {
    const auto& state = *static_cast<const DeviceState*>(plan->device_state.get());
    const auto batch = static_cast<int>(lengths.kv_lens.size());
    const int q_len = lengths.q_starts[static_cast<size_t>(batch)] / batch;
    CUDA_CHECK(cudaMemcpy(state.kv_lens.data(), lengths.kv_lens.data(), lengths.kv_lens.size_bytes(),
                          cudaMemcpyHostToDevice));
    launch_flash_mla_metadata({.kv_lens = reinterpret_cast<const int32_t*>(state.kv_lens.data()),
                               .batch = batch,
                               .q_len = q_len,
                               .heads = d.attrs.num_heads,
                               .metadata = state.metadata.data()},
                              num_sms());
    CUDA_CHECK(cudaDeviceSynchronize());
    plan->words[0] = q_len;
  }

  void run(const ops::MlaAttentionParams& p, const Plan& plan,
           const kernels::KernelContext& context) const override {
    const auto& state = *static_cast<const DeviceState*>(plan.device_state.get());
    const int width = kLatent + kRope, heads = p.attrs.num_heads, q_len = plan.words[0];
    // It takes queries and outputs whole: [tokens, heads, 576] and [tokens, heads, 512] without gaps.
    CHECK(p.q_nope.stride(0) == int64_t{heads} * width && p.q_nope.stride(1) == width &&
              p.q_pe.raw() == p.q_nope.data<uint16_t>() + kLatent && p.out.is_contiguous() &&
              p.lse.is_contiguous() && p.cache.is_contiguous(),
          "flash_mla: q_nope and q_pe must be slices of one tensor, and out, lse and cache contiguous");
    const auto batch = static_cast<int>(p.batch.kv_lens.dim(0));
    CHECK(p.out.dim(0) == int64_t{batch} * q_len, "flash_mla: {} rows are not {} requests of {} queries",
          p.out.dim(0), batch, q_len);
    launch_flash_mla({.q = p.q_nope.raw(),
                      .cache = p.cache.raw(),
                      .kv_lens = p.batch.kv_lens.data<int32_t>(),
                      .block_table = p.batch.block_table.data<int32_t>(),
                      .out = p.out.raw(),
                      .lse = p.lse.data<float>(),
                      .num_pages = p.cache.dim(0),
                      .table_stride = p.batch.block_table.stride(0),
                      .batch = batch,
                      .q_len = q_len,
                      .heads = heads,
                      .softmax_scale = p.attrs.softmax_scale,
                      .metadata = state.metadata.data(),
                      .scratch = context.workspace.data(),
                      .stream = context.stream},
                     num_sms());
  }
};

}  // namespace

const attention::Backend& flash_mla_backend() {
  static const FlashMlaBackend backend;
  return backend;
}

}  // namespace latent::bench
