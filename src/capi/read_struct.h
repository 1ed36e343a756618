// SPDX-License-Identifier: Apache-2.0
// Structs that callers hand over, of whichever version they were compiled with.
#pragma once

#include <cstddef>

#include "base/result.h"

namespace latent::capi {

inline Error invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

// All versions so far have one size each. A later one will take an older, shorter struct, its rest zero.
template <class T>
Result<T> read_struct(const T* given, const char* type) {
  if (given == nullptr) return make_error(ErrorCode::kInvalidArgument, "{} is NULL", type);
  if (given->struct_size < sizeof(T))
    return make_error(ErrorCode::kInvalidArgument, "struct_size {} of {}: set it to sizeof, which is {}",
                      given->struct_size, type, sizeof(T));
  if (given->struct_size > sizeof(T))
    return make_error(ErrorCode::kUnsupported,
                      "struct_size {} of {}: this library knows {} bytes of it; it is older than the header",
                      given->struct_size, type, sizeof(T));
  return *given;
}

}  // namespace latent::capi
