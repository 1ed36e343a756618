// SPDX-License-Identifier: Apache-2.0
#include "capi/last_error.h"

namespace latent::capi {
namespace {

std::string& message() {
  static thread_local std::string text;
  return text;
}

latent_status to_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return LATENT_INVALID_ARGUMENT;
    case ErrorCode::kUnsupported:
      return LATENT_UNSUPPORTED;
    case ErrorCode::kExhausted:
      return LATENT_EXHAUSTED;
    default:
      return LATENT_INTERNAL;
  }
}

}  // namespace

latent_status fail(const Error& error) {
  message() = error.message;
  return to_status(error.code);
}

const char* last_error() { return message().c_str(); }

}  // namespace latent::capi
