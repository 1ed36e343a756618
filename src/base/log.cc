// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <atomic>
#include <cstdio>

namespace latent {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kWarn};
constexpr const char* kNames[] = {"debug", "info", "warning", "error"};

}  // namespace

void set_log_level(LogLevel level) { g_level = level; }
LogLevel log_level() { return g_level; }

void log_line(LogLevel level, std::string_view message) {
  // One call, so that lines of several threads do not mix.
  std::fprintf(stderr, "latent: %s: %.*s\n", kNames[static_cast<int>(level)],
               static_cast<int>(message.size()), message.data());
}

}  // namespace latent
