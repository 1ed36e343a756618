// SPDX-License-Identifier: Apache-2.0
// The shapes that are built; each is compiled in inst/.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/backends/cuda_common/code_row.h"
#include "attention/backends/cuda_sm80/decode_launch.h"

namespace latent::attention::cuda {

template <class T, int kRank, int kRope, Codes kCodes>
const DecodeInstance* decode_instance(int rows);

namespace {

template <class T>
const DecodeInstance* find_wide(int kv_rank, int rope_dim, int rows) {
  switch (kv_rank * 1000 + rope_dim) {
    case 512064:
      return decode_instance<T, 512, 64, Codes::kNone>(rows);
    case 512032:
      return decode_instance<T, 512, 32, Codes::kNone>(rows);
    case 512000:
      return decode_instance<T, 512, 0, Codes::kNone>(rows);
    case 256064:
      return decode_instance<T, 256, 64, Codes::kNone>(rows);
    case 256032:
      return decode_instance<T, 256, 32, Codes::kNone>(rows);
    case 256000:
      return decode_instance<T, 256, 0, Codes::kNone>(rows);
    default:
      return nullptr;
  }
}

template <class T>
const DecodeInstance* find_one_scale(int kv_rank, int rope_dim, int rows) {
  switch (kv_rank * 1000 + rope_dim) {
    case 512064:
      return decode_instance<T, 512, 64, Codes::kOneScale>(rows);
    case 512000:
      return decode_instance<T, 512, 0, Codes::kOneScale>(rows);
    case 256064:
      return decode_instance<T, 256, 64, Codes::kOneScale>(rows);
    default:
      return nullptr;
  }
}

template <class T>
const DecodeInstance* find_of_type(DType q_dtype, DType cache_dtype, int kv_rank, int rope_dim, int rows) {
  if (cache_dtype == q_dtype) return find_wide<T>(kv_rank, rope_dim, rows);
  if (cache_dtype == DType::kF8E4M3) return find_one_scale<T>(kv_rank, rope_dim, rows);
  return nullptr;
}

}  // namespace

const DecodeInstance* find_decode_instance(DType q_dtype, DType cache_dtype, int kv_rank, int rope_dim,
                                           int rows) {
  const bool blocks = cache_dtype == DType::kU8 && kv_rank == 512 && rope_dim == 64;
  if (blocks && q_dtype == DType::kBF16) return decode_instance<__nv_bfloat16, 512, 64, Codes::kBlocks>(rows);
  if (q_dtype == DType::kBF16)
    return find_of_type<__nv_bfloat16>(q_dtype, cache_dtype, kv_rank, rope_dim, rows);
  if (q_dtype == DType::kF16) return find_of_type<__half>(q_dtype, cache_dtype, kv_rank, rope_dim, rows);
  return nullptr;
}

}  // namespace latent::attention::cuda
