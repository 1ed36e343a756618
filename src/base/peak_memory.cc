// SPDX-License-Identifier: Apache-2.0
#include "base/peak_memory.h"

#include <fstream>
#include <string>

namespace latent {

int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmHWM:") continue;
    int64_t kib = 0;
    status >> kib;
    return kib << 10;
  }
  return 0;
}

}  // namespace latent
