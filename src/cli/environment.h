// SPDX-License-Identifier: Apache-2.0
// The LATENT_… environment: a variable for every flag, named after it, and those of base/env.h.
#pragma once

#include <string>

#include "base/result.h"

namespace CLI {
class App;
}

namespace latent::cli {

// Refuses values that the table of base/env.h does not allow; sets the log level.
Status read_environment();

// Every flag of the app and its commands reads LATENT_<FLAG>: --max-tokens by LATENT_MAX_TOKENS.
void name_environment(CLI::App& app);

// A warning for each LATENT_… variable that is set and that nothing reads: a misspelling, most likely.
void warn_unknown_environment(const CLI::App& app);

// The variables that have no flag, for --help.
std::string environment_help();

}  // namespace latent::cli
