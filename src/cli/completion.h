// SPDX-License-Identifier: Apache-2.0
// Shell completion, generated from the command line's own description, so it cannot go stale.
#pragma once

#include <string>

#include "base/result.h"

namespace CLI {
class App;
}

namespace latent::cli {

// A script for "bash", "zsh" or "fish"; kInvalidArgument for another shell.
Result<std::string> completion_script(const CLI::App& app, const std::string& shell);

}  // namespace latent::cli
