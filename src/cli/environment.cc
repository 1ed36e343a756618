// SPDX-License-Identifier: Apache-2.0
#include "cli/environment.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <set>

#include "base/env.h"
#include "base/log.h"

namespace latent::cli {
namespace {

constexpr std::string_view kPrefix = "LATENT_";

std::string variable_name(const std::string& flag) {
  std::string name(kPrefix);
  for (const char c : flag)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

bool has_variable(const CLI::Option& option) {
  if (option.get_lnames().empty()) return false;
  const std::string& flag = option.get_lnames().front();
  return flag != "help" && flag != "version";
}

void collect_names(const CLI::App& app, std::set<std::string>& names) {
  for (const CLI::Option* option : app.get_options()) names.insert(option->get_envname());
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    collect_names(*sub, names);
}

}  // namespace

Status read_environment() {
  if (Status s = check_environment(); !s) return s;
  const std::string level = env_string("LATENT_LOG", "warn");
  if (level == "debug") set_log_level(LogLevel::kDebug);
  if (level == "info") set_log_level(LogLevel::kInfo);
  if (level == "error") set_log_level(LogLevel::kError);
  return {};
}

void name_environment(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (has_variable(*option)) option->envname(variable_name(option->get_lnames().front()));
  for (CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; })) name_environment(*sub);
}

void warn_unknown_environment(const CLI::App& app) {
  std::set<std::string> known;
  collect_names(app, known);
  for (const EnvVariable& variable : env_table()) known.insert(variable.name);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string name(text.substr(0, text.find('=')));
    if (name.compare(0, kPrefix.size(), kPrefix) == 0 && known.count(name) == 0)
      log(LogLevel::kWarn, "{} is set in the environment, but no flag or setting has that name", name);
  }
}

std::string environment_help() {
  std::string text = "\nEnvironment beside the flags:\n";
  for (const EnvVariable& v : env_table())
    text += fmt::format("  {} ({}): {}\n", v.name, v.values, v.meaning);
  return text;
}

}  // namespace latent::cli
