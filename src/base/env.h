// SPDX-License-Identifier: Apache-2.0
// The LATENT_… environment variables: one table, loud on nonsense. Command-line flags read theirs through
// the command line's parser; this table holds what has no flag.
#pragma once

#include <span>
#include <string>

#include "base/result.h"

namespace latent {

struct EnvVariable {
  const char* name;    // "LATENT_ISA"
  const char* values;  // "scalar|avx2|avx512", for help and for the check
  const char* meaning;
};

// Every variable that has no flag, for --help and the docs.
std::span<const EnvVariable> env_table();

// Value of a variable of the table, or the fallback if it is unset or empty. CHECKs that the table has it.
std::string env_string(const char* name, const char* fallback);

// An error that names the first variable of the table whose value is not among its values.
Status check_environment();

}  // namespace latent
