// SPDX-License-Identifier: Apache-2.0
// What CLI11 found wrong with the command line, in our words.
#pragma once

#include "base/result.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace latent::cli {

// One sentence that names the flag and the value, and the help to read.
Error usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace latent::cli
