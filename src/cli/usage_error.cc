// SPDX-License-Identifier: Apache-2.0
#include "cli/usage_error.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string_view>

namespace latent::cli {
namespace {

// The command that was being parsed, "latent bench model" say, and its words.
struct Command {
  const CLI::App* app;
  std::string words;
};

Command parsed_command(const CLI::App& app) {
  Command command{&app, app.get_name()};
  while (!command.app->get_subcommands().empty()) {
    command.app = command.app->get_subcommands().front();
    command.words += " " + command.app->get_name();
  }
  return command;
}

std::string what_it_is_not(const CLI::App& app, const std::string& flag) {
  const CLI::Option* option = app.get_option_no_throw(flag);
  const std::string type = option != nullptr ? option->get_type_name() : "";
  if (type.compare(0, 4, "UINT") == 0) return "is too large or not a whole number that is not negative";
  if (type.compare(0, 3, "INT") == 0) return "is too large or not a whole number";
  return type.compare(0, 5, "FLOAT") == 0 ? "is too large or not a number" : "is neither 1 nor 0";
}

// What the text says of flags may come from the environment, which the user does not see on the line.
std::string set_in_environment(const CLI::App& app, const std::string& text) {
  std::string names;
  for (const CLI::Option* option : app.get_options()) {
    const std::string variable = option->get_envname();
    if (variable.empty() || text.find("--" + option->get_lnames().front()) == std::string::npos) continue;
    if (std::getenv(variable.c_str()) != nullptr) names += (names.empty() ? "" : ", ") + variable;
  }
  return names.empty() ? "" : " (" + names + " in the environment)";
}

// "Could not convert: --context = 1.5" and "--context: 1 required INT missing" say neither what would do nor,
// readably, what is wrong.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::string text = error.what();
  constexpr std::string_view kConvert = "Could not convert: ", kEquals = " = ";
  if (const size_t equals = text.find(kEquals);
      equals != std::string::npos && text.compare(0, kConvert.size(), kConvert) == 0) {
    const std::string flag = text.substr(kConvert.size(), equals - kConvert.size());
    return fmt::format("{} '{}' {}", flag, text.substr(equals + kEquals.size()), what_it_is_not(app, flag));
  }
  if (error.get_name() == "ArgumentMismatch" && text.find(" missing") != std::string::npos)
    return text.substr(0, text.find(':')) + " needs a value";
  return text;
}

}  // namespace

Error usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const Command command = parsed_command(app);
  const std::string text = explain(*command.app, error);
  return make_error(ErrorCode::kInvalidArgument, "{}{}; see {} --help", text,
                    set_in_environment(*command.app, text), command.words);
}

}  // namespace latent::cli
