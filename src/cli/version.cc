// SPDX-License-Identifier: Apache-2.0
#include "cli/version.h"

#include <fmt/core.h>

#include <fstream>

#include "base/cpu_features.h"
#include "base/parallel.h"

namespace latent::cli {

std::string version_number() { return LATENT_VERSION; }
std::string commit() { return LATENT_COMMIT; }

std::string device_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string name = "unknown processor";
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0) {
      name = line.substr(line.find(':') + 2);
      break;
    }
  return fmt::format("{}, {} cores, {}", name, available_cores(), to_string(cpu_features()));
}

std::string version_text() {
  return fmt::format("latent {}\ncommit {}\ncompiler {}\ncpu {}", version_number(), commit(), __VERSION__,
                     device_name());
}

}  // namespace latent::cli
