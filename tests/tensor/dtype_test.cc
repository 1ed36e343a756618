// SPDX-License-Identifier: Apache-2.0
#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace latent {
namespace {

constexpr DType kAll[] = {DType::kF32,    DType::kF16, DType::kBF16, DType::kF8E4M3,
                          DType::kF8E8M0, DType::kI32, DType::kI64,  DType::kU8};

TEST(DType, every_type_has_a_size_and_names_of_its_own) {
  std::set<std::string> names;
  for (const DType dtype : kAll) {
    EXPECT_GE(dtype_bytes(dtype), 1u);
    names.insert(to_string(dtype));
    EXPECT_EQ(parse_safetensors_dtype(safetensors_name(dtype)), dtype);
  }
  EXPECT_EQ(names.size(), std::size(kAll));
}

TEST(DType, types_we_do_not_read_are_told) {
  for (const char* name : {"F64", "BOOL", "bf16", ""})
    EXPECT_EQ(parse_safetensors_dtype(name), std::nullopt) << name;
}

TEST(DType, ids_are_no_floats) {
  for (const DType dtype : {DType::kI32, DType::kI64, DType::kU8}) EXPECT_FALSE(is_float(dtype));
  EXPECT_EQ(element_kind(DType::kI32), ElementKind::kInt32);
  EXPECT_EQ(element_kind(DType::kBF16), ElementKind::kBFloat16);
}

}  // namespace
}  // namespace latent
