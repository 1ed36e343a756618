// SPDX-License-Identifier: Apache-2.0
// latent bench: measurements, each a subcommand.
#include <CLI/CLI.hpp>

#include "cli/bench_attention.h"
#include "cli/bench_model.h"
#include "cli/commands.h"

namespace latent::cli {

void add_bench(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("bench", "Measure speed, beside the machine's own limits");
  command->require_subcommand(1);
  add_bench_model(*command, action);
  add_bench_attention(*command, action);
}

}  // namespace latent::cli
