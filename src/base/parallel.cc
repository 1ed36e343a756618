// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace latent {
namespace {

// Whole cores that a cgroup v2 quota allows; a large number where there is none.
int quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 1 << 20;
  return std::max(1, static_cast<int>(std::ceil(std::atof(quota.c_str()) / period)));
}

}  // namespace

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int affine = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::max(1, std::min(affine, quota_cores()));
}

#ifndef LATENT_OPENMP
void run_started_team(int num_threads, void (*member)(void*, int, int), void* body) {
  thread_local bool in_team = false;
  if (num_threads <= 1 || in_team) return member(body, 0, 1);
  const auto run = [&](int thread) {
    in_team = true;
    member(body, thread, num_threads);
    in_team = false;
  };
  std::vector<std::jthread> others;
  others.reserve(static_cast<size_t>(num_threads - 1));
  for (int thread = 1; thread < num_threads; ++thread) others.emplace_back(run, thread);
  run(0);
}
#endif

}  // namespace latent
