// SPDX-License-Identifier: Apache-2.0
// The commands, one file each. Every add_… describes its command to the parser; if the user chose it, parsing
// stores what is to be done in `action`, which returns the exit code.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace latent::cli {

using Action = std::function<int()>;

void add_run(CLI::App& app, Action& action);
void add_score(CLI::App& app, Action& action);
void add_perplexity(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_compare(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_completion(CLI::App& app, Action& action);

}  // namespace latent::cli
