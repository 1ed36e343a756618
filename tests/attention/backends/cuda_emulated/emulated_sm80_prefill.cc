// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_emulated/emulated_prefill.h"
#include "attention/backends/cuda_sm80/prefill_cta.cuh"
#include "base/check.h"
#include "gpu_emulator/emulator.h"

namespace latent::testing {
namespace {

using attention::cuda::PrefillParams;
using attention::cuda::PrefillWidths;
using attention::cuda::Sm80AnyPrefillConfig;
using attention::cuda::Sm80PrefillConfig;
using attention::cuda::Sm80PrefillCta;

template <class T, class Config>
std::string run_kernel(const PrefillParams& p, const PrefillWidths& widths, const PrefillEmulation& e) {
  return emulator::run(
      {.ctas = e.ctas,
       .threads = Config::kThreads,
       .shared_bytes = Config::kSharedBytes,
       .seed = e.seed,
       .lazy = e.lazy,
       .ctas_at_once = static_cast<size_t>(e.ctas_at_once)},
      [&](unsigned char* shared) { Sm80PrefillCta<T, Config>(p, widths, e.section_keys, shared).run(); });
}

template <class T>
std::string run_widths(const PrefillParams& p, const PrefillWidths& w, const PrefillEmulation& e) {
  if (w.nope == 128 && w.rope == 64 && w.v == 128)
    return run_kernel<T, Sm80PrefillConfig<128, 64, 128>>(p, w, e);
  if (w.nope == 192 && w.rope == 64 && w.v == 256)
    return run_kernel<T, Sm80PrefillConfig<192, 64, 256>>(p, w, e);
  return run_kernel<T, Sm80AnyPrefillConfig>(p, w, e);
}

class EmulatedSm80Prefill final : public attention::PrefillBackend {
 public:
  explicit EmulatedSm80Prefill(const PrefillEmulation& emulation) : emulation_(emulation) {}
  const char* name() const override { return "cuda_sm80, emulated"; }
  std::optional<attention::Refusal> supports(const attention::PrefillDesc& desc) const override {
    if (const auto refusal = attention::refuse_malformed(desc)) return refusal;
    if (desc.on_device || desc.dtype == DType::kF32)
      return attention::Refusal{"is emulated for 16-bit operands in host memory only"};
    return std::nullopt;
  }
  std::shared_ptr<void> create_state() const override { return std::make_shared<int32_t>(0); }

  void run(const ops::PrefillAttentionParams& p, void* state, const kernels::KernelContext&) const override {
    PrefillParams params = attention::cuda::prefill_params(p, name());
    params.next_item = static_cast<int32_t*>(state);
    const PrefillWidths widths{.nope = p.attrs.nope_dim, .rope = p.attrs.rope_dim, .v = p.attrs.v_dim};
    const std::string failure = p.q_nope.dtype() == DType::kBF16
                                    ? run_widths<__nv_bfloat16>(params, widths, emulation_)
                                    : run_widths<__half>(params, widths, emulation_);
    CHECK(failure.empty(), "{}: {}", name(), failure);
    CHECK(*params.next_item == 0, "{}: the counter is left at {}", name(), *params.next_item);
  }

 private:
  const PrefillEmulation emulation_;
};

}  // namespace

std::unique_ptr<attention::PrefillBackend> make_emulated_sm80_prefill(const PrefillEmulation& emulation) {
  return std::make_unique<EmulatedSm80Prefill>(emulation);
}

}  // namespace latent::testing
