// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_sm90/cuda_sm90_prefill.h"

#include <fmt/format.h>

#include "attention/backends/cuda_common/device_info.h"
#include "attention/backends/cuda_common/split_memory.h"
#include "attention/backends/cuda_sm90/prefill_launch.h"
#include "base/check.h"

namespace latent::attention {
namespace {

using cuda::PrefillParams;
using cuda::Sm90Prefill;

const Sm90Prefill* instance_of(DType dtype, const ops::PrefillAttentionAttrs& a) {
  return cuda::find_sm90_prefill(dtype, a.nope_dim, a.rope_dim, a.v_dim);
}

class CudaSm90Prefill final : public PrefillBackend {
 public:
  const char* name() const override { return "cuda_sm90"; }

  std::optional<Refusal> supports(const PrefillDesc& desc) const override {
    if (const auto refusal = refuse_malformed(desc)) return refusal;
    if (!desc.on_device) return Refusal{"reads device memory, and these operands live in host memory"};
    const cuda::DeviceInfo& device = cuda::device_info();
    if (!device.present) return Refusal{"needs an NVIDIA GPU, and the driver shows none"};
    if (device.compute_major != 9)
      return Refusal{fmt::format("is built for compute capability 9.0, this GPU has {}.{}",
                                 device.compute_major, device.compute_minor)};
    if (instance_of(desc.dtype, desc.attrs) == nullptr)
      return Refusal{fmt::format("has no kernel for {} with nope {}, rope {} and v {}", to_string(desc.dtype),
                                 desc.attrs.nope_dim, desc.attrs.rope_dim, desc.attrs.v_dim)};
    return std::nullopt;
  }

  // The counter that CTAs draw their work from.
  std::shared_ptr<void> create_state() const override { return cuda::create_arrival_counters(); }

  void run(const ops::PrefillAttentionParams& p, void* state,
           const kernels::KernelContext& context) const override {
    const Sm90Prefill* instance = instance_of(p.q_nope.dtype(), p.attrs);
    CHECK(instance != nullptr && state != nullptr, "{}: asked to run what it does not support", name());
    PrefillParams params = cuda::prefill_params(p, name());
    params.next_item = static_cast<int32_t*>(state);
    if (params.num_tokens == 0) return;
    instance->launch(params, cuda::make_prefill_maps(params, instance->dtype, instance->boxes),
                     cuda::device_info().num_sms, context.stream);
  }
};

}  // namespace

const PrefillBackend& cuda_sm90_prefill() {
  static const CudaSm90Prefill backend;
  return backend;
}

}  // namespace latent::attention
