// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace latent::cli {

struct PrefillFlags {
  std::vector<int> heads, batches, lens, contexts;
  std::vector<std::string> protocols;
  std::vector<std::string> backends;  // empty: every one but the reference
  bool grid = false, json = false;
};

// latent bench attention --prefill: prompts, on every backend that serves them, in turns. An exit code.
int bench_prompts(const PrefillFlags& flags);

}  // namespace latent::cli
