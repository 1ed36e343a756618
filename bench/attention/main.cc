// SPDX-License-Identifier: Apache-2.0
// `latent bench attention` alone, for a GPU machine without what the rest of the program needs, and with the
// rivals that were built beside it.
#include <CLI/CLI.hpp>

#include "cli/bench_attention.h"
#include "cli/exit_code.h"
#ifdef LATENT_FLASH_MLA
#include "compare/flash_mla_backend.h"
#endif

namespace latent::cli {
namespace {

std::vector<const attention::Backend*> rivals() {
#ifdef LATENT_FLASH_MLA
  return {&bench::flash_mla_backend()};
#else
  return {};
#endif
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Attention kernels, measured.", "latent_bench_attention_gpu");
  app.require_subcommand(1);
  Action action;
  add_bench_attention(app, action, rivals());
  CLI11_PARSE(app, argc, argv);
  return action();
}

}  // namespace
}  // namespace latent::cli

int main(int argc, char** argv) { return latent::cli::parse_and_run(argc, argv); }
