// SPDX-License-Identifier: Apache-2.0
// The shapes that are built; each is compiled in inst/.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/backends/cuda_sm90/decode_launch.h"

namespace latent::attention::cuda {

template <class T, int kRank, int kRope>
const Sm90Instance* sm90_instance(DType dtype, int rows);

namespace {

template <class T>
const Sm90Instance* find_of_type(DType dtype, int kv_rank, int rope_dim, int rows) {
  switch (kv_rank * 1000 + rope_dim) {
    case 512064:
      return sm90_instance<T, 512, 64>(dtype, rows);
    case 512032:
      return sm90_instance<T, 512, 32>(dtype, rows);
    case 512000:
      return sm90_instance<T, 512, 0>(dtype, rows);
    case 256064:
      return sm90_instance<T, 256, 64>(dtype, rows);
    case 256032:
      return sm90_instance<T, 256, 32>(dtype, rows);
    case 256000:
      return sm90_instance<T, 256, 0>(dtype, rows);
    default:
      return nullptr;
  }
}

}  // namespace

const Sm90Instance* find_sm90_instance(DType dtype, int kv_rank, int rope_dim, int rows) {
  if (dtype == DType::kBF16) return find_of_type<__nv_bfloat16>(dtype, kv_rank, rope_dim, rows);
  if (dtype == DType::kF16) return find_of_type<__half>(dtype, kv_rank, rope_dim, rows);
  return nullptr;
}

}  // namespace latent::attention::cuda
