// SPDX-License-Identifier: Apache-2.0
// What the process answers. Printed by `latent --help`.
#pragma once

#include "base/result.h"

namespace latent::cli {

enum ExitCode {
  kOk = 0,
  kRunError = 1,     // something went wrong at run: memory, non-finite numbers, output that cannot be written
  kUsageError = 2,   // a flag, a value, an id or a prompt that cannot be served
  kModelError = 3,   // the model or another input file is missing, corrupt or not supported
  kCancelled = 130,  // ended by Ctrl-C; what was generated until then is printed
};

// Prints "latent: error: …" to stderr and returns the exit code that the error's own code means: invalid
// arguments are usage errors; what is missing, corrupt or unsupported is the model's or file's fault; the
// rest is of the run.
int fail(const Error& error);

// The same error as one of the model's, unless memory ran out or Ctrl-C ended it.
Error model_error(Error error);

}  // namespace latent::cli
