// SPDX-License-Identifier: Apache-2.0
// Implementations of the operators that read weight matrices.
#include "kernels/ref/matrix.h"

#include "kernels/registry.h"

namespace latent::kernels {

using namespace ops;

template <>
std::span<const Implementation<LinearParams>> implementations<LinearParams>() {
  static constexpr Implementation<LinearParams> kAll[] = {{"ref", nullptr, nullptr, ref::linear}};
  return kAll;
}

template <>
std::span<const Implementation<HeadLinearParams>> implementations<HeadLinearParams>() {
  static constexpr Implementation<HeadLinearParams> kAll[] = {{"ref", nullptr, nullptr, ref::head_linear}};
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
  static constexpr Implementation<TransposeParams> kAll[] = {{"ref", nullptr, nullptr, ref::transpose}};
  return kAll;
}

}  // namespace latent::kernels
