// SPDX-License-Identifier: Apache-2.0
// The implementations of each operator, best first, the reference last. Adding one is one line in
// registry/<family>.cc. Attention is not here: it has plans and backends of its own (attention/).
#pragma once

#include <cstddef>
#include <span>

#include "base/cpu_features.h"
#include "ops/elementwise.h"
#include "ops/fold.h"
#include "ops/kv_layout.h"
#include "ops/linear.h"
#include "ops/moe.h"
#include "ops/rope.h"

namespace latent::kernels {

// What a kernel is given beside its operands.
struct KernelContext {
  int num_threads = 1;
  // Contract C5: one order of every sum whatever the number of rows; no library that picks a kernel by shape.
  bool deterministic = false;
  // At least workspace_bytes(); 64-byte aligned, contents unspecified. A kernel never allocates.
  std::span<std::byte> workspace = {};
  // The stream (a cudaStream_t) of kernels on device memory; unused on a CPU.
  void* stream = nullptr;
};

template <class Params>
struct Implementation {
  const char* name;  // "ref", "cpu_avx512_bf16"
  // Null if it serves these operands on this machine, else the reason as half a sentence ("needs AVX-512").
  const char* (*refuse)(const Params&, const CpuFeatures&);
  // Scratch needed for these operands or smaller ones (fewer tokens); null for none.
  size_t (*workspace_bytes)(const Params&, int num_threads);
  void (*run)(const Params&, const KernelContext&);
};

// Best first, reference last. Specialised for every Params of the list at the end.
template <class Params>
std::span<const Implementation<Params>> implementations();

// The first implementation that does not refuse; the reference never does.
template <class Params>
const Implementation<Params>& select(const Params& params) {
  const std::span<const Implementation<Params>> all = implementations<Params>();
  for (const Implementation<Params>& impl : all)
    if (impl.refuse == nullptr || impl.refuse(params, cpu_features()) == nullptr) return impl;
  return all.back();
}

#define LATENT_DECLARE_KERNEL(Params) \
  template <>                         \
  std::span<const Implementation<ops::Params>> implementations<ops::Params>()
LATENT_DECLARE_KERNEL(LinearParams);
LATENT_DECLARE_KERNEL(HeadLinearParams);
LATENT_DECLARE_KERNEL(EmbeddingParams);
LATENT_DECLARE_KERNEL(RmsNormParams);
LATENT_DECLARE_KERNEL(AddParams);
LATENT_DECLARE_KERNEL(ScaleParams);
LATENT_DECLARE_KERNEL(SiluParams);
LATENT_DECLARE_KERNEL(MulParams);
LATENT_DECLARE_KERNEL(SiluMulParams);
LATENT_DECLARE_KERNEL(GatherRowsParams);
LATENT_DECLARE_KERNEL(RopeParams);
LATENT_DECLARE_KERNEL(KvCacheWriteParams);
LATENT_DECLARE_KERNEL(RopeKvCacheWriteParams);
LATENT_DECLARE_KERNEL(RouterParams);
LATENT_DECLARE_KERNEL(MoeExpertsParams);
LATENT_DECLARE_KERNEL(DequantizeParams);
LATENT_DECLARE_KERNEL(TransposeParams);
#undef LATENT_DECLARE_KERNEL

}  // namespace latent::kernels
