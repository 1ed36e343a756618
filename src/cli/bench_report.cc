// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_report.h"

#include <ctime>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/version.h"

namespace latent::cli {

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!text.empty() && text.back() == '\0') text.pop_back();
  // The program by its name: where it lies is nobody's business.
  const size_t end = std::min(text.find('\0'), text.size());
  const size_t slash = text.rfind('/', end);
  if (slash != std::string::npos && slash < end) text.erase(0, slash + 1);
  for (char& c : text)
    if (c == '\0') c = ' ';
  return text;
}

nlohmann::json bench_envelope(const std::string& subject, const std::string& command, nlohmann::json ceilings,
                              nlohmann::json rows) {
  const std::time_t now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return {{"schema", "latent.bench." + subject + "/1"},
          {"commit", commit()},
          {"device", device_name()},
          {"date", date},
          {"command", command},
          {"ceilings", std::move(ceilings)},
          {"rows", std::move(rows)}};
}

}  // namespace latent::cli
