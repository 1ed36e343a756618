// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cpu/cpu_backend.h"

#include "attention/backends/cpu/absorbed.h"
#include "attention/backends/cpu/multi_head.h"
#include "attention/backends/cpu/output_rows.h"
#include "attention/desc.h"

namespace latent::attention {
namespace {

class CpuBackend final : public Backend {
 public:
  const char* name() const override { return "cpu"; }

  std::optional<Refusal> supports(const MlaDesc& desc) const override {
    if (const auto refusal = refuse_malformed(desc)) return refusal;
    if (const auto refusal = refuse_device_memory(desc)) return refusal;
    if (desc.q_dtype == DType::kF16) return Refusal{"takes queries in f32 or bf16, not f16"};
    return std::nullopt;
  }

  size_t workspace_bytes(const MlaDesc& desc, const Limits& limits) const override {
    return is_absorbed(desc.attrs) ? cpu::absorbed_workspace_bytes(desc, limits)
                                   : cpu::multi_head_workspace_bytes(desc, limits);
  }

  void reserve_plan(const MlaDesc& desc, const Limits& limits, Plan* plan) const override {
    if (is_absorbed(desc.attrs))
      plan->words.reserve(static_cast<size_t>(cpu::max_absorbed_plan_words(desc, limits)));
  }

  // The multi-head form walks its tiles in order and has nothing to plan.
  void plan(const MlaDesc& desc, const Limits& limits, const SeqLengths& lengths, Plan* plan) const override {
    if (is_absorbed(desc.attrs)) cpu::plan_absorbed(desc, limits, lengths, plan);
  }

  void run(const ops::MlaAttentionParams& params, const Plan& plan,
           const kernels::KernelContext& context) const override {
    cpu::write_rows_without_keys(params, context.num_threads);
    if (is_absorbed(params.attrs))
      cpu::run_absorbed(params, plan, context);
    else
      cpu::run_multi_head(params, context);
  }
};

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace latent::attention
