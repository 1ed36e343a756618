// SPDX-License-Identifier: Apache-2.0
// The shapes that are built; each is compiled in inst/.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/backends/cuda_common/code_row.h"
#include "attention/backends/cuda_sm90/decode_launch.h"

namespace latent::attention::cuda {

template <class T, int kRank, int kRope, Codes kCodes>
const Sm90Instance* sm90_instance(int rows);
template <class T, int kRank, int kRope>
const Sm90Instance* wide_instance();

namespace {

template <class T, int kRank, int kRope>
const Sm90Instance* find_rows(int rows) {
  return rows == 64 ? wide_instance<T, kRank, kRope>() : sm90_instance<T, kRank, kRope, Codes::kNone>(rows);
}

template <class T>
const Sm90Instance* find_plain(int kv_rank, int rope_dim, int rows) {
  switch (kv_rank * 1000 + rope_dim) {
    case 512064:
      return find_rows<T, 512, 64>(rows);
    case 512032:
      return find_rows<T, 512, 32>(rows);
    case 512000:
      return find_rows<T, 512, 0>(rows);
    case 256064:
      return find_rows<T, 256, 64>(rows);
    case 256032:
      return find_rows<T, 256, 32>(rows);
    case 256000:
      return find_rows<T, 256, 0>(rows);
    default:
      return nullptr;
  }
}

template <class T>
const Sm90Instance* find_of_type(DType q_dtype, DType cache_dtype, int kv_rank, int rope_dim, int rows) {
  if (cache_dtype == q_dtype) return find_plain<T>(kv_rank, rope_dim, rows);
  if (cache_dtype == DType::kF8E4M3 && kv_rank == 512 && rope_dim == 64)
    return sm90_instance<T, 512, 64, Codes::kOneScale>(rows);
  return nullptr;
}

}  // namespace

const Sm90Instance* find_sm90_instance(DType q_dtype, DType cache_dtype, int kv_rank, int rope_dim,
                                       int rows) {
  const bool blocks = cache_dtype == DType::kU8 && kv_rank == 512 && rope_dim == 64;
  if (blocks && q_dtype == DType::kBF16) return sm90_instance<__nv_bfloat16, 512, 64, Codes::kBlocks>(rows);
  if (q_dtype == DType::kBF16)
    return find_of_type<__nv_bfloat16>(q_dtype, cache_dtype, kv_rank, rope_dim, rows);
  if (q_dtype == DType::kF16) return find_of_type<__half>(q_dtype, cache_dtype, kv_rank, rope_dim, rows);
  return nullptr;
}

}  // namespace latent::attention::cuda
