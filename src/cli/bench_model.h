// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/commands.h"

namespace latent::cli {

void add_bench_model(CLI::App& bench, Action& action);

}  // namespace latent::cli
