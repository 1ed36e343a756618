// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_sm80/cuda_sm80_prefill.h"

#include <fmt/format.h>

#include "attention/backends/cuda_common/device_info.h"
#include "attention/backends/cuda_common/split_memory.h"
#include "attention/backends/cuda_sm80/prefill_launch.h"
#include "base/check.h"

namespace latent::attention {
namespace {

using cuda::PrefillParams;
using cuda::PrefillWidths;
using cuda::Sm80Prefill;

PrefillWidths widths_of(const ops::PrefillAttentionAttrs& a) {
  return {.nope = a.nope_dim, .rope = a.rope_dim, .v = a.v_dim};
}

class CudaSm80Prefill final : public PrefillBackend {
 public:
  const char* name() const override { return "cuda_sm80"; }

  std::optional<Refusal> supports(const PrefillDesc& desc) const override {
    if (const auto refusal = refuse_malformed(desc)) return refusal;
    if (!desc.on_device) return Refusal{"reads device memory, and these operands live in host memory"};
    const cuda::DeviceInfo& device = cuda::device_info();
    if (!device.present) return Refusal{"needs an NVIDIA GPU, and the driver shows none"};
    if (device.compute_major < 8)
      return Refusal{fmt::format("needs compute capability 8.0, this GPU has {}.{}", device.compute_major,
                                 device.compute_minor)};
    if (desc.dtype == DType::kF32) return Refusal{"takes operands in f16 or bf16, not f32"};
    const Sm80Prefill* instance = cuda::find_sm80_prefill(desc.dtype, widths_of(desc.attrs));
    if (instance == nullptr)
      return Refusal{
          fmt::format("takes widths that are multiples of 8, of keys and of values up to {}, not nope {}, "
                      "rope {} and v {}",
                      cuda::kWidestPrefill, desc.attrs.nope_dim, desc.attrs.rope_dim, desc.attrs.v_dim)};
    if (instance->shared_bytes > device.shared_bytes_per_block)
      return Refusal{fmt::format("needs {} bytes of shared memory a block, this GPU has {}",
                                 instance->shared_bytes, device.shared_bytes_per_block)};
    return std::nullopt;
  }

  // The counter that CTAs draw their work from.
  std::shared_ptr<void> create_state() const override { return cuda::create_arrival_counters(); }

  void run(const ops::PrefillAttentionParams& p, void* state,
           const kernels::KernelContext& context) const override {
    const PrefillWidths widths = widths_of(p.attrs);
    const Sm80Prefill* instance = cuda::find_sm80_prefill(p.q_nope.dtype(), widths);
    CHECK(instance != nullptr && state != nullptr, "{}: asked to run what it does not support", name());
    PrefillParams params = cuda::prefill_params(p, name());
    params.next_item = static_cast<int32_t*>(state);
    if (params.num_tokens == 0) return;
    instance->launch(params, widths, cuda::device_info().num_sms, context.stream);
  }
};

}  // namespace

const PrefillBackend& cuda_sm80_prefill() {
  static const CudaSm80Prefill backend;
  return backend;
}

}  // namespace latent::attention
