// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cpu/cache_rows.h"

#include <cstring>

#include "kernels/kv_row.h"
#include "tensor/convert.h"

namespace latent::attention::cpu {

void CacheRows::read(const LaneEngine& engine, int64_t token, int first, int count, DType dtype,
                     void* to) const {
  if (layout_.format() != ops::KvFormat::kWide)
    return kernels::decode_kv_row(layout_, row(token), scale_, first, count, static_cast<float*>(to));
  const DType own = cache_->dtype();
  const auto own_bytes = static_cast<int64_t>(dtype_bytes(own));
  const int64_t stride = cache_->stride(2);
  const std::byte* from = row(token) + first * stride * own_bytes;
  DCHECK(dtype == own || dtype == DType::kF32, "a {} cache read as {}", to_string(own), to_string(dtype));
  if (stride == 1 && dtype == own) {
    std::memcpy(to, from, static_cast<size_t>(count * own_bytes));
  } else if (stride == 1) {
    engine.widen(from, own, count, static_cast<float*>(to));
  } else {
    const auto bytes = static_cast<int64_t>(dtype_bytes(dtype));
    for (int i = 0; i < count; ++i)
      convert_elements(from + i * stride * own_bytes, own, static_cast<std::byte*>(to) + i * bytes, dtype, 1);
  }
}

}  // namespace latent::attention::cpu
