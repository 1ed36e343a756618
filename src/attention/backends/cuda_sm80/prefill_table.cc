// SPDX-License-Identifier: Apache-2.0
// The shapes that have a kernel of their own, and the kernel for all others; each is compiled in inst/.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/backends/cuda_sm80/prefill_launch.h"

namespace latent::attention::cuda {

template <int kNope, int kRope, int kValue>
struct Sm80PrefillConfig;
struct Sm80AnyPrefillConfig;
template <class T, class Config>
const Sm80Prefill* sm80_prefill();

namespace {

template <class T>
const Sm80Prefill* find_of_type(const PrefillWidths& w) {
  const auto is = [&](int nope, int rope, int v) { return w.nope == nope && w.rope == rope && w.v == v; };
  if (is(128, 64, 128)) return sm80_prefill<T, Sm80PrefillConfig<128, 64, 128>>();
  if (is(192, 64, 256)) return sm80_prefill<T, Sm80PrefillConfig<192, 64, 256>>();
  const bool whole = w.nope % 8 == 0 && w.rope % 8 == 0 && w.v % 8 == 0;
  const bool fits = w.nope + w.rope <= kWidestPrefill && w.v <= kWidestPrefill;
  return whole && fits ? sm80_prefill<T, Sm80AnyPrefillConfig>() : nullptr;
}

}  // namespace

const Sm80Prefill* find_sm80_prefill(DType dtype, const PrefillWidths& widths) {
  if (dtype == DType::kBF16) return find_of_type<__nv_bfloat16>(widths);
  if (dtype == DType::kF16) return find_of_type<__half>(widths);
  return nullptr;
}

}  // namespace latent::attention::cuda
