// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace latent::cli {

struct CacheFlags {
  std::string op, kv_cache;  // as on the command line
  std::vector<int> batches, lens;
  std::vector<std::string> protocols;
  bool json = false;
};

// latent bench attention --op cache-write|gather: the kernels that fill the cache and read it back, on a GPU.
// An exit code.
int bench_cache(const CacheFlags& flags);

}  // namespace latent::cli
