// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

namespace latent {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kExhausted:
      return "exhausted";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kNonFinite:
      return "non_finite";
    case ErrorCode::kIo:
      return "io";
  }
  return "unknown";
}

Error Error::with_context(std::string_view context) const {
  return Error{code, fmt::format("{}: {}", context, message)};
}

}  // namespace latent
