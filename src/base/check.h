// SPDX-License-Identifier: Apache-2.0
// CHECK: our bug. Prints the sentence and where it stands, then aborts; on in release builds.
// DCHECK: the same in hot loops, on only in debug builds.
#pragma once

#include <fmt/core.h>

#include <string_view>

namespace latent {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view message);

}  // namespace latent

// CHECK(rows == cols, "a square matrix, not {} x {}", rows, cols)
#define CHECK(condition, ...)                                                             \
  do {                                                                                    \
    if (!(condition)) [[unlikely]]                                                        \
      ::latent::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
  } while (false)

#ifdef NDEBUG
#define DCHECK(condition, ...) \
  do {                         \
  } while (false)
#else
#define DCHECK(condition, ...) CHECK(condition, __VA_ARGS__)
#endif
