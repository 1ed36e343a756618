// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include "base/check.h"

namespace latent {
namespace {

struct DTypeInfo {
  DType dtype;
  size_t bytes;
  bool is_float;
  const char* name;
  const char* safetensors;
  ElementKind kind;
};

constexpr DTypeInfo kInfo[] = {
    {DType::kF32, 4, true, "f32", "F32", ElementKind::kFloat32},
    {DType::kF16, 2, true, "f16", "F16", ElementKind::kFloat16},
    {DType::kBF16, 2, true, "bf16", "BF16", ElementKind::kBFloat16},
    {DType::kF8E4M3, 1, true, "f8_e4m3", "F8_E4M3", ElementKind::kFloat8E4M3},
    {DType::kF8E8M0, 1, true, "f8_e8m0", "F8_E8M0", ElementKind::kBytes},
    {DType::kI32, 4, false, "i32", "I32", ElementKind::kInt32},
    {DType::kI64, 8, false, "i64", "I64", ElementKind::kInt32},
    {DType::kU8, 1, false, "u8", "U8", ElementKind::kBytes},
};

const DTypeInfo& info(DType dtype) {
  for (const DTypeInfo& i : kInfo)
    if (i.dtype == dtype) return i;
  CHECK(false, "dtype {} is not in the table", static_cast<int>(dtype));
  return kInfo[0];
}

}  // namespace

size_t dtype_bytes(DType dtype) { return info(dtype).bytes; }
bool is_float(DType dtype) { return info(dtype).is_float; }
const char* to_string(DType dtype) { return info(dtype).name; }
ElementKind element_kind(DType dtype) { return info(dtype).kind; }
const char* safetensors_name(DType dtype) { return info(dtype).safetensors; }

std::optional<DType> parse_safetensors_dtype(std::string_view name) {
  for (const DTypeInfo& i : kInfo)
    if (name == i.safetensors) return i.dtype;
  return std::nullopt;
}

}  // namespace latent
