// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "attention/backend.h"
#include "cli/commands.h"

namespace latent::cli {

// `rivals` are timed beside the backends of the build; they must outlive the parser.
void add_bench_attention(CLI::App& bench, Action& action, std::vector<const attention::Backend*> rivals = {});

}  // namespace latent::cli
