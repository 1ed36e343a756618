// SPDX-License-Identifier: Apache-2.0
#include "cli/attention_bench/cuda/board_energy.h"

#include <dlfcn.h>

namespace latent::cli {
namespace {

// The library's C interface, as far as it is used here; 0 is success.
struct Nvml {
  int (*init)() = nullptr;
  int (*handle_by_index)(unsigned index, void** handle) = nullptr;
  int (*total_energy)(void* handle, unsigned long long* millijoules) = nullptr;
};

template <class Function>
bool load(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

const Nvml* nvml() {
  static const std::optional<Nvml> loaded = []() -> std::optional<Nvml> {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    Nvml n;
    if (library == nullptr || !load(library, "nvmlInit_v2", &n.init) ||
        !load(library, "nvmlDeviceGetHandleByIndex_v2", &n.handle_by_index) ||
        !load(library, "nvmlDeviceGetTotalEnergyConsumption", &n.total_energy) || n.init() != 0)
      return std::nullopt;
    return n;
  }();
  return loaded ? &*loaded : nullptr;
}

}  // namespace

std::optional<double> board_joules(int device) {
  const Nvml* n = nvml();
  void* handle = nullptr;
  unsigned long long millijoules = 0;
  if (n == nullptr || n->handle_by_index(static_cast<unsigned>(device), &handle) != 0 ||
      n->total_energy(handle, &millijoules) != 0)
    return std::nullopt;
  return 1e-3 * static_cast<double>(millijoules);
}

}  // namespace latent::cli
