// SPDX-License-Identifier: Apache-2.0
// Implementations of the operators that read weight matrices.
#include "kernels/cpu/matrix.h"

#include "kernels/ref/matrix.h"
#include "kernels/registry.h"

namespace latent::kernels {

using namespace ops;

namespace {

using cpu::Isa;

template <Isa isa>
constexpr Implementation<LinearParams> kLinear = {
    nullptr,
    [](const LinearParams& p, const CpuFeatures& f) { return cpu::refuse(isa, f, p.weight, p.x, p.out); },
    [](const LinearParams& p, int threads) { return cpu::linear_workspace(isa, p, threads); },
    [](const LinearParams& p, const KernelContext& c) { cpu::linear(isa, p, c); }};

template <Isa isa>
constexpr Implementation<HeadLinearParams> kHeadLinear = {
    nullptr,
    [](const HeadLinearParams& p, const CpuFeatures& f) { return cpu::refuse(isa, f, p.weight, p.x, p.out); },
    [](const HeadLinearParams& p, int threads) { return cpu::head_linear_workspace(isa, p, threads); },
    [](const HeadLinearParams& p, const KernelContext& c) { cpu::head_linear(isa, p, c); }};

template <Isa isa>
constexpr Implementation<MoeExpertsParams> kMoeExperts = {
    nullptr,
    [](const MoeExpertsParams& p, const CpuFeatures& f) { return cpu::refuse_moe_experts(isa, p, f); },
    [](const MoeExpertsParams& p, int threads) { return cpu::moe_experts_workspace(isa, p, threads); },
    [](const MoeExpertsParams& p, const KernelContext& c) { cpu::moe_experts(isa, p, c); }};

template <class Params>
constexpr Implementation<Params> named(const char* name, Implementation<Params> implementation) {
  implementation.name = name;
  return implementation;
}

}  // namespace

template <>
std::span<const Implementation<LinearParams>> implementations<LinearParams>() {
  static constexpr Implementation<LinearParams> kAll[] = {named("cpu_avx512_bf16", kLinear<Isa::kAvx512Bf16>),
                                                          named("cpu_avx512", kLinear<Isa::kAvx512>),
                                                          named("cpu_avx2", kLinear<Isa::kAvx2>),
                                                          {"ref", nullptr, nullptr, ref::linear}};
  return kAll;
}

template <>
std::span<const Implementation<HeadLinearParams>> implementations<HeadLinearParams>() {
  static constexpr Implementation<HeadLinearParams> kAll[] = {
      named("cpu_avx512_bf16", kHeadLinear<Isa::kAvx512Bf16>),
      named("cpu_avx512", kHeadLinear<Isa::kAvx512>),
      named("cpu_avx2", kHeadLinear<Isa::kAvx2>),
      {"ref", nullptr, nullptr, ref::head_linear}};
  return kAll;
}

template <>
std::span<const Implementation<EmbeddingParams>> implementations<EmbeddingParams>() {
  static constexpr Implementation<EmbeddingParams> kAll[] = {{"ref", nullptr, nullptr, ref::embedding}};
  return kAll;
}

template <>
std::span<const Implementation<MoeExpertsParams>> implementations<MoeExpertsParams>() {
  static constexpr Implementation<MoeExpertsParams> kAll[] = {
      named("cpu_avx512_bf16", kMoeExperts<Isa::kAvx512Bf16>),
      named("cpu_avx512", kMoeExperts<Isa::kAvx512>),
      named("cpu_avx2", kMoeExperts<Isa::kAvx2>),
      {"ref", nullptr, ref::moe_experts_workspace, ref::moe_experts}};
  return kAll;
}

template <>
std::span<const Implementation<DequantizeParams>> implementations<DequantizeParams>() {
  static constexpr Implementation<DequantizeParams> kAll[] = {{"ref", nullptr, nullptr, ref::dequantize}};
  return kAll;
}

template <>
std::span<const Implementation<TransposeParams>> implementations<TransposeParams>() {
  static constexpr Implementation<TransposeParams> kAll[] = {
      {"cpu_blocked", nullptr, nullptr, cpu::transpose}, {"ref", nullptr, nullptr, ref::transpose}};
  return kAll;
}

}  // namespace latent::kernels
