// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace latent::cli {

std::string version_number();  // "0.1.0"
std::string commit();          // what this was built from, "unknown" outside a repository
std::string device_name();     // the processor, as the system names it, and the cores this process may use
std::string version_text();    // all of it, for --version

}  // namespace latent::cli
