// SPDX-License-Identifier: Apache-2.0
#include "base/env.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/check.h"

namespace latent {
namespace {

constexpr EnvVariable kTable[] = {
    {"LATENT_ISA", "scalar|avx2|avx512", "use no more than these CPU instructions"},
    {"LATENT_LOG", "debug|info|warn|error", "least level of log lines on stderr"},
};

bool is_one_of(std::string_view value, std::string_view choices) {
  while (!choices.empty()) {
    const size_t bar = std::min(choices.find('|'), choices.size());
    if (choices.substr(0, bar) == value) return true;
    choices.remove_prefix(std::min(bar + 1, choices.size()));
  }
  return false;
}

}  // namespace

std::span<const EnvVariable> env_table() { return kTable; }

std::string env_string(const char* name, const char* fallback) {
  const bool known = std::any_of(std::begin(kTable), std::end(kTable),
                                 [&](const EnvVariable& v) { return std::string_view(v.name) == name; });
  CHECK(known, "environment variable {} is not in the table", name);
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

Status check_environment() {
  for (const EnvVariable& v : kTable) {
    const char* value = std::getenv(v.name);
    if (value == nullptr || *value == '\0' || is_one_of(value, v.values)) continue;
    return make_error(ErrorCode::kInvalidArgument, "{}='{}' in the environment; it may be {}", v.name, value,
                      v.values);
  }
  return {};
}

}  // namespace latent
