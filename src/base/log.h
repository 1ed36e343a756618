// SPDX-License-Identifier: Apache-2.0
// Log lines on stderr; stdout holds only results. Level by LATENT_LOG (debug, info, warn, error) or
// set_log_level. Thread-safe.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace latent {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

void set_log_level(LogLevel level);
LogLevel log_level();
void log_line(LogLevel level, std::string_view message);

template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (level >= log_level()) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace latent
