// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_emulated/emulated_sm90.h"

#include <algorithm>
#include <vector>

#include "attention/backends/cuda_sm80/decode_attend.cuh"
#include "attention/backends/cuda_sm80/decode_codes.cuh"
#include "attention/backends/cuda_sm80/decode_merge.cuh"
#include "attention/backends/cuda_sm90/narrow_attend.cuh"
#include "attention/backends/cuda_sm90/narrow_codes.cuh"
#include "attention/backends/cuda_sm90/narrow_merge.cuh"
#include "attention/backends/cuda_sm90/wide_attend.cuh"
#include "attention/backends/cuda_sm90/wide_merge.cuh"
#include "attention/desc.h"
#include "base/check.h"
#include "base/math.h"
#include "gpu_emulator/emulator.h"
#include "ops/mla_attention.h"

namespace latent::testing {
namespace {

using attention::MlaDesc;
using attention::cuda::Codes;
using attention::cuda::DecodeConfig;
using attention::cuda::DecodeCta;
using attention::cuda::DecodeParams;
using attention::cuda::NarrowConfig;
using attention::cuda::NarrowCta;
using attention::cuda::PartitionRule;
using attention::cuda::WideConfig;
using attention::cuda::WideCta;

constexpr PartitionRule kRule = {
    .tile_tokens = 64, .fixed_tiles = 1, .least_tiles = 1, .least_stretch = 1, .slack_tiles = 1};

template <class Cta, class Config>
std::string run_kernel(const DecodeParams& params, const CUtensorMap& map, const Emulation& e) {
  return emulator::run({.ctas = params.num_parts * params.num_row_tiles,
                        .threads = Config::kThreads,
                        .shared_bytes = Config::kSharedBytes,
                        .registers = 65536 / Config::kThreads / 8 * 8,
                        .seed = e.seed,
                        .lazy = e.lazy,
                        .ctas_at_once = static_cast<size_t>(e.ctas_at_once)},
                       [&](unsigned char* shared) { Cta(params, kRule, &map, shared).run(); });
}

template <class T, class Config>
std::string run_portable(const DecodeParams& params, const Emulation& e) {
  PartitionRule rule = kRule;
  rule.tile_tokens = Config::kTokens;
  return emulator::run(
      {.ctas = params.num_parts * params.num_row_tiles,
       .threads = Config::kThreads,
       .shared_bytes = static_cast<size_t>(Config::shared_bytes(e.stages)),
       .seed = e.seed,
       .lazy = e.lazy,
       .ctas_at_once = static_cast<size_t>(e.ctas_at_once)},
      [&](unsigned char* shared) { DecodeCta<T, Config>(params, rule, e.stages, shared).run(); });
}

template <int kRank, int kRope, Codes kCodes>
std::string run_portable_dims(const DecodeParams& params, const Emulation& e) {
  using T = __nv_bfloat16;
  if (e.rows == 16) return run_portable<T, DecodeConfig<T, kRank, kRope, 16, kCodes>>(params, e);
  if (e.rows == 32) return run_portable<T, DecodeConfig<T, kRank, kRope, 32, kCodes>>(params, e);
  return run_portable<T, DecodeConfig<T, kRank, kRope, 64, kCodes>>(params, e);
}

template <int kRank, int kRope, Codes kCodes = Codes::kNone>
std::string run_dims(const DecodeParams& params, const CUtensorMap& map, const Emulation& e) {
  if (e.portable) return run_portable_dims<kRank, kRope, kCodes>(params, e);
  using T = __nv_bfloat16;
  using Rows16 = NarrowConfig<T, kRank, kRope, 16, kCodes>;
  using Rows32 = NarrowConfig<T, kRank, kRope, 32, kCodes>;
  if constexpr (kCodes == Codes::kNone) {
    using Rows64 = WideConfig<T, kRank, kRope>;
    if (e.rows == 64) return run_kernel<WideCta<T, Rows64>, Rows64>(params, map, e);
  }
  return e.rows == 16 ? run_kernel<NarrowCta<T, Rows16>, Rows16>(params, map, e)
                      : run_kernel<NarrowCta<T, Rows32>, Rows32>(params, map, e);
}

std::string run_kernels(const ops::MlaAttentionParams& p, const DecodeParams& params, const Emulation& e) {
  using attention::cuda::CodeRow;
  const bool codes = attention::kv_layout(p.attrs, p.cache.dtype()).format() != ops::KvFormat::kWide;
  const auto bytes = static_cast<int64_t>(dtype_bytes(p.cache.dtype()));
  CUtensorMap map{.base = static_cast<const unsigned char*>(p.cache.raw()),
                  .dims = {p.attrs.kv_rank + p.attrs.rope_dim, p.attrs.page_tokens, p.cache.dim(0)},
                  .strides = {p.cache.stride(1) * bytes, p.cache.stride(0) * bytes},
                  .box_rows = std::min(p.attrs.page_tokens, 64)};
  if (codes) {
    map.dims[0] = p.cache.dim(2) / 4;
    map.element_bytes = 4;
    map.swizzled = false;
    map.box_columns = (p.cache.dtype() == DType::kU8 ? CodeRow<512, 64, Codes::kBlocks>::kStride
                                                     : CodeRow<512, 64, Codes::kOneScale>::kStride) /
                      4;
  }
  if (p.cache.dtype() == DType::kU8) return run_dims<512, 64, Codes::kBlocks>(params, map, e);
  if (codes) return run_dims<512, 64, Codes::kOneScale>(params, map, e);
  if (p.attrs.kv_rank == 512) return run_dims<512, 64>(params, map, e);
  return p.attrs.rope_dim > 0 ? run_dims<256, 32>(params, map, e) : run_dims<256, 0>(params, map, e);
}

class EmulatedSm90 final : public attention::Backend {
 public:
  explicit EmulatedSm90(const Emulation& emulation) : emulation_(emulation) {}
  const char* name() const override {
    return emulation_.portable ? "cuda_sm80, emulated" : "cuda_sm90, emulated";
  }
  std::optional<attention::Refusal> supports(const MlaDesc& desc) const override {
    if (const auto refusal = attention::refuse_malformed(desc)) return refusal;
    if (desc.on_device) return attention::Refusal{"reads host memory"};
    const int dims = desc.attrs.kv_rank * 1000 + desc.attrs.rope_dim;
    const bool codes = attention::kv_layout(desc).format() != ops::KvFormat::kWide;
    const bool serves = attention::is_absorbed(desc.attrs) && desc.q_dtype == DType::kBF16 &&
                        (codes || desc.cache_dtype == DType::kBF16) &&
                        (dims == 512064 || (!codes && (dims == 256032 || dims == 256000)));
    if (!serves) return attention::Refusal{"is emulated for a few shapes only"};
    return std::nullopt;
  }
  size_t workspace_bytes(const MlaDesc&, const attention::Limits&) const override { return 0; }
  void reserve_plan(const MlaDesc&, const attention::Limits&, attention::Plan* plan) const override {
    plan->words.assign(1, 0);
  }
  void plan(const MlaDesc& desc, const attention::Limits&, const attention::SeqLengths& lengths,
            attention::Plan* plan) const override {
    plan->words[0] = 0;
    for (size_t i = 0; i + 1 < lengths.q_starts.size(); ++i)
      plan->words[0] =
          std::max(plan->words[0], (lengths.q_starts[i + 1] - lengths.q_starts[i]) * desc.attrs.num_heads);
  }

  void run(const ops::MlaAttentionParams& p, const attention::Plan& plan,
           const kernels::KernelContext&) const override {
    DecodeParams params = attention::cuda::decode_params(p, name());
    params.num_row_tiles = ceil_div(std::max(plan.words[0], 1), emulation_.rows);
    params.num_parts = std::max(1, emulation_.parts / params.num_row_tiles);
    const size_t slots =
        2 * static_cast<size_t>(params.num_parts) * static_cast<size_t>(params.num_row_tiles);
    const auto rows = static_cast<size_t>(emulation_.rows), width = static_cast<size_t>(p.attrs.kv_rank);
    std::vector<float> partial_out(slots * rows * width, std::nanf("")),
        states(slots * rows * 2, std::nanf(""));
    std::vector<int32_t> arrived(slots, 0);
    params.partial_out = partial_out.data();
    params.partial_lse = states.data();
    params.arrived = arrived.data();
    const std::string failure = run_kernels(p, params, emulation_);
    CHECK(failure.empty(), "{}: {}", name(), failure);
    CHECK(std::all_of(arrived.begin(), arrived.end(), [](int32_t n) { return n == 0; }),
          "{}: counters are left standing", name());
  }

 private:
  const Emulation emulation_;
};

}  // namespace

std::unique_ptr<attention::Backend> make_emulated_sm90(const Emulation& emulation) {
  return std::make_unique<EmulatedSm90>(emulation);
}

}  // namespace latent::testing
