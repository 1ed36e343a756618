// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_emulated/emulated_prefill.h"
#include "attention/backends/cuda_sm90/prefill_attend.cuh"
#include "base/check.h"
#include "gpu_emulator/emulator.h"

namespace latent::testing {
namespace {

using attention::cuda::PrefillConfig;
using attention::cuda::PrefillCta;
using attention::cuda::PrefillMaps;
using attention::cuda::PrefillParams;
using attention::cuda::PrefillRows;

// As prefill_maps.cc describes them, without what the real ones bound beside: rows before and after all.
CUtensorMap map_of(const PrefillRows& rows, int heads, int width, int box_rows) {
  const int64_t row_bytes = rows.token_stride * 2;
  return {.base = static_cast<const unsigned char*>(rows.data) - box_rows * row_bytes,
          .dims = {width, box_rows, rows.head_stride == 0 ? 1 : heads},
          .strides = {row_bytes, rows.head_stride * 2},
          .box_rows = box_rows};
}

template <class T, class Config>
std::string run_kernel(const PrefillParams& p, const PrefillEmulation& e) {
  const auto of_queries = [&](const PrefillRows& rows, int width) {
    return map_of(rows, p.num_heads, width, Config::kGroupRows);
  };
  const auto of_keys = [&](const PrefillRows& rows, int width) {
    return map_of(rows, p.num_heads, width, Config::kKeys);
  };
  const PrefillMaps maps{.q_nope = of_queries(p.q_nope, Config::kNope),
                         .q_pe = of_queries(p.q_pe, Config::kRope),
                         .k_nope = of_keys(p.k_nope, Config::kNope),
                         .k_pe = of_keys(p.k_pe, Config::kRope),
                         .v = of_keys(p.v, Config::kValue),
                         .k_pe_is_shared = p.k_pe.head_stride == 0,
                         .section_keys = e.section_keys};
  return emulator::run({.ctas = e.ctas,
                        .threads = Config::kThreads,
                        .shared_bytes = Config::kSharedBytes,
                        .registers = 65536 / Config::kThreads / 8 * 8,
                        .seed = e.seed,
                        .lazy = e.lazy,
                        .ctas_at_once = static_cast<size_t>(e.ctas_at_once)},
                       [&](unsigned char* shared) { PrefillCta<T, Config>(p, maps, shared).run(); });
}

template <class T>
std::string run_dims(const PrefillParams& params, int v_dim, const PrefillEmulation& e) {
  return v_dim == 128 ? run_kernel<T, PrefillConfig<128, 64, 128>>(params, e)
                      : run_kernel<T, PrefillConfig<192, 64, 256>>(params, e);
}

class EmulatedSm90Prefill final : public attention::PrefillBackend {
 public:
  explicit EmulatedSm90Prefill(const PrefillEmulation& emulation) : emulation_(emulation) {}
  const char* name() const override { return "cuda_sm90, emulated"; }
  std::optional<attention::Refusal> supports(const attention::PrefillDesc& desc) const override {
    if (const auto refusal = attention::refuse_malformed(desc)) return refusal;
    const int dims = desc.attrs.nope_dim * 1000 + desc.attrs.v_dim;
    if (desc.on_device || desc.attrs.rope_dim != 64 || (dims != 128128 && dims != 192256) ||
        desc.dtype == DType::kF32)
      return attention::Refusal{"is emulated for a few shapes in host memory only"};
    return std::nullopt;
  }
  std::shared_ptr<void> create_state() const override { return std::make_shared<int32_t>(0); }

  void run(const ops::PrefillAttentionParams& p, void* state, const kernels::KernelContext&) const override {
    PrefillParams params = attention::cuda::prefill_params(p, name());
    params.next_item = static_cast<int32_t*>(state);
    const std::string failure = p.q_nope.dtype() == DType::kBF16
                                    ? run_dims<__nv_bfloat16>(params, p.attrs.v_dim, emulation_)
                                    : run_dims<__half>(params, p.attrs.v_dim, emulation_);
    CHECK(failure.empty(), "{}: {}", name(), failure);
    CHECK(*params.next_item == 0, "{}: the counter is left at {}", name(), *params.next_item);
  }

 private:
  const PrefillEmulation emulation_;
};

}  // namespace

std::unique_ptr<attention::PrefillBackend> make_emulated_sm90_prefill(const PrefillEmulation& emulation) {
  return std::make_unique<EmulatedSm90Prefill>(emulation);
}

}  // namespace latent::testing
