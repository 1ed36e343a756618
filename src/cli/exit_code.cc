// SPDX-License-Identifier: Apache-2.0
#include "cli/exit_code.h"

#include "base/log.h"

namespace latent::cli {

int fail(const Error& error) {
  log_line(LogLevel::kError, error.message);
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return kUsageError;
    case ErrorCode::kNotFound:
    case ErrorCode::kCorrupt:
    case ErrorCode::kUnsupported:
      return kModelError;
    case ErrorCode::kCancelled:
      return kCancelled;
    case ErrorCode::kExhausted:
    case ErrorCode::kNonFinite:
    case ErrorCode::kIo:
      return kRunError;
  }
  return kRunError;
}

Error model_error(Error error) {
  if (error.code != ErrorCode::kExhausted && error.code != ErrorCode::kCancelled)
    error.code = ErrorCode::kCorrupt;
  return error;
}

}  // namespace latent::cli
