// SPDX-License-Identifier: Apache-2.0
#include "base/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace latent {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

int64_t system_bytes() {
  std::ifstream info("/proc/meminfo");
  int64_t kib = 0;
  bool known = false;
  for (std::string word; info >> word;) {
    if (word != "MemAvailable:" && word != "SwapFree:") continue;
    int64_t part = 0;
    info >> part;
    kib += part;
    known = true;
  }
  return known ? kib << 10 : kUnknown;
}

// "max" where there is no limit.
int64_t group_limit_bytes() {
  std::ifstream file("/sys/fs/cgroup/memory.max");
  int64_t bytes = 0;
  return file >> bytes ? bytes : kUnknown;
}

}  // namespace

int64_t available_memory_bytes() { return std::min(system_bytes(), group_limit_bytes()); }

}  // namespace latent
