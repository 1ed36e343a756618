// SPDX-License-Identifier: Apache-2.0
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace latent {

void check_failed(const char* file, int line, const char* condition, std::string_view message) {
  std::fprintf(stderr, "latent: internal error at %s:%d: %.*s (CHECK %s)\n", file, line,
               static_cast<int>(message.size()), message.data(), condition);
  std::fflush(stderr);
  std::abort();
}

}  // namespace latent
