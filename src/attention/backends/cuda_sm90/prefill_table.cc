// SPDX-License-Identifier: Apache-2.0
// The shapes that are built; each is compiled in inst/.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/backends/cuda_sm90/prefill_launch.h"

namespace latent::attention::cuda {

template <class T, int kNope, int kRope, int kValue>
const Sm90Prefill* sm90_prefill(DType dtype);

namespace {

template <class T>
const Sm90Prefill* find_of_type(DType dtype, int nope_dim, int rope_dim, int v_dim) {
  const auto is = [&](int nope, int rope, int v) {
    return nope_dim == nope && rope_dim == rope && v_dim == v;
  };
  if (is(128, 64, 128)) return sm90_prefill<T, 128, 64, 128>(dtype);
  if (is(192, 64, 256)) return sm90_prefill<T, 192, 64, 256>(dtype);
  return nullptr;
}

}  // namespace

const Sm90Prefill* find_sm90_prefill(DType dtype, int nope_dim, int rope_dim, int v_dim) {
  if (dtype == DType::kBF16) return find_of_type<__nv_bfloat16>(dtype, nope_dim, rope_dim, v_dim);
  if (dtype == DType::kF16) return find_of_type<__half>(dtype, nope_dim, rope_dim, v_dim);
  return nullptr;
}

}  // namespace latent::attention::cuda
