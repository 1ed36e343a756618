// SPDX-License-Identifier: Apache-2.0
// The real binary, run as a user runs it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace latent::cli {

struct Outcome {
  int exit_code = -1;  // 128 + the signal if one ended it
  std::string out;
  std::string err;
};

// Runs `latent` with the arguments and `environment` ("NAME=value") on top of a clean one with one
// compute thread; stdin is `input`.
Outcome run_latent(const std::vector<std::string>& arguments, const std::string& input = "",
                   const std::vector<std::string>& environment = {});

// The same with SIGINT sent as soon as something is on stdout or, if given, `sign` on stderr.
Outcome run_latent_and_interrupt(const std::vector<std::string>& arguments, const std::string& sign = "",
                                 const std::vector<std::string>& environment = {});

std::string read_file(const std::filesystem::path& path);

}  // namespace latent::cli
