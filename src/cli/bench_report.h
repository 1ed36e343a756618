// SPDX-License-Identifier: Apache-2.0
// The JSON envelope that every bench shares.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace latent::cli {

// {"schema", "commit", "device", "date", "command", "ceilings", "rows"}; schema is
// "latent.bench.<subject>/1", date is UTC.
nlohmann::json bench_envelope(const std::string& subject, const std::string& command, nlohmann::json ceilings,
                              nlohmann::json rows);

// This process's command line.
std::string command_line();

}  // namespace latent::cli
